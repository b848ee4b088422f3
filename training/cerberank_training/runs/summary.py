"""The summary of a run beside what it made: `run.json` for programs, and the model card for people.

Both are made from the run's record. Paths are cut to file names, because checkpoints are published. Commands that
evaluate, tune and calibrate know from `run.json` the data that a model was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.atomic import write_json
from cerberank_models.checkpoint.bound import SHA256
from cerberank_models.checkpoint.model_card import RUN, with_terms
from cerberank_models.checkpoint.regular import read_regular
from cerberank_models.json_lines import load_json
from cerberank_training.data import DataError, Question
from cerberank_training.runs.record import LARGEST, Call, RunRecord, is_first_process
from cerberank_training.runs.run_data import MAP, data_content, figure_name, short_digest

METRIC = "dev_map"
SELECT = "select"
"""The key of the metric that chose the weights, if it is not MAP."""
CARD = """# {name}

A CERBERUS ranker `{architecture}` for answer sentence selection, written by `cerberank train {verb}` on {date}.

| | |
|---|---|
{rows}

Hexadecimal numbers are the beginning of the SHA-256 of the files' content; `run.json` has them in full.

## Figures

| set | questions | metric | value |
|---|---|---|---|
{figures}

The first of these sets chose the weights, so that its figure is higher than that of new questions.

## Recipe

```json
{recipe}
```
"""


def spec_name(spec: str) -> str:
    """`FORMAT:PATH` with only the last part of the path, and of paths in options that lead out of it.

    >>> spec_name("jsonl:/home/me/dev.jsonl"), spec_name("trec:sets/robust?part=dev")
    ('jsonl:dev.jsonl', 'trec:robust?part=dev')
    >>> spec_name("beir:/home/me/nq?split=dev&run=runs/e5.trec"), spec_name("beir:nq?run=/home/me/e5.trec")
    ('beir:nq?split=dev&run=runs/e5.trec', 'beir:nq?run=e5.trec')
    """
    form, _, rest = spec.partition(":")
    path, mark, options = rest.partition("?")
    return f"{form}:{Path(path).name or path}{mark}{'&'.join(map(_without_folders, options.split('&')))}"


def dev_metric(summary: Mapping[str, Any]) -> str:
    """The name of the dev figure in a manifest's metrics. It differs for other files, options or numbers of questions.

    >>> dev_metric({"dev": {"name": "jsonl:dev.jsonl", "sha256": {"dev.jsonl": "5f2a1c9b00"}, "questions": 300}})
    'dev_map[jsonl:dev.jsonl:5f2a1c9b/300]'
    """
    dev = summary["dev"]
    return f"{figure_name(dev.get(SELECT, MAP))}[{dev['name']}:{short_digest(dev[SHA256])}/{dev['questions']}]"


def dev_map(metrics: Mapping[str, float]) -> float:
    """The figure on the dev set that chose a checkpoint's weights, for any set. Raises KeyError if there is none."""
    names = [name for name in metrics if name == METRIC or name.startswith(f"{METRIC}[")]
    if not names:
        raise KeyError(METRIC)
    return metrics[names[0]]


def summary_of(
    record: RunRecord, *, teachers: Sequence[Mapping[str, Any]], earlier: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The summary of a finished run; `teachers` have a name, a revision, and optionally the figure on their dev set.

    `earlier` are the data that the base was trained on, by name and SHA-256.
    """
    bound, names = record.bound, record.free["names"]
    figure = figure_name(bound["dev"].get(SELECT, MAP))
    return {
        "format": 1,
        "verb": record.verb,
        "digest": record.digest,
        "recipe": record.free["recipe"],
        "base": {"name": names["base"], "commit": names.get("commit")} | bound["base"],
        "data": data_of(record),
        "earlier_data": [dict(data) for data in earlier],
        "dev": {
            "name": spec_name(names["dev"]),
            SHA256: bound["dev"][SHA256],
            "questions": record.results["questions"],
            **{name: value for name, value in bound["dev"].items() if name == SELECT},
        },
        "teachers": [dict(teacher) for teacher in teachers],
        "settings": bound["settings"] | {"steps": bound["steps"], "patience": bound["patience"]},
        "reached": record.results["reached"],
        figure: record.results["best"],
        "best_step": record.results.get("best_step"),
        f"{figure}_at_start": record.results.get("start"),
        "software": _software(record.calls),
    }


def data_of(record: RunRecord) -> dict[str, Any]:
    """The data of a run, by name and SHA-256. Raises KeyError for a run on documents."""
    names = record.free["names"]
    return {"name": spec_name(names.get("groups") or names["train"]), SHA256: record.bound["data"][SHA256]}


def read_summary(checkpoint: Path) -> dict[str, Any] | None:
    """`run.json` of a checkpoint's folder; None where there is none, or another file of this name."""
    try:
        summary = load_json(read_regular(checkpoint / RUN, LARGEST).decode("utf-8"))
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) else None


def training_data(folder: Path) -> list[dict[str, Any]]:
    """The data, by name and SHA-256, that the model in `folder` was trained on; those of its base come last.

    They are known for checkpoints of `distil` and for the folders that `teach` and `pairwise` write, and stay known
    through `import`, `pretrain` and every command that writes a changed checkpoint. The list is empty for other models.
    """
    resolved = folder.resolve()
    run = resolved.parent if resolved.name == "ranker" else resolved
    if summary := read_summary(folder) or read_summary(run):
        data, earlier = summary.get("data"), summary.get("earlier_data")
        return [part for part in (data, *(earlier if isinstance(earlier, list) else ())) if _is_data(part)]
    return []


def write_training_data(out: Path, record: RunRecord, *, base: Path) -> None:
    """Write a summary with the data of a run and of its base into `out`, from the first process.

    It is for runs that write no checkpoint, and written when they begin, so that a killed run cannot lack it.
    """
    if is_first_process():
        data = {"data": data_of(record)} if "data" in record.bound else {}
        write_json(out / RUN, data | {"earlier_data": training_data(base)})


def trained_on(folder: Path, spec: str, questions: Iterable[Question]) -> str:
    """A sentence that says that the model in `folder` was trained on `FORMAT:PATH`; empty if that is not known.

    Files are compared by content, and `questions` if the data are not files.
    """
    if not (known := training_data(folder)):
        return ""
    content = data_content(spec, questions)
    digests, options = sorted(content[SHA256].values()), spec_name(spec).partition("?")[2]
    for data in known:
        if sorted(data[SHA256].values()) == digests and str(data.get("name")).partition("?")[2] == options:
            named = "" if data["name"] == spec_name(spec) else f" (as {data['name']})"
            return f"{folder} was trained on {spec}{named}: figures on it say nothing of new questions"
    return ""


def check_not_trained_on(folder: Path, spec: str, questions: Iterable[Question], *, option: str) -> None:
    """Raise DataError, which names the option, if the model in `folder` was trained on `FORMAT:PATH`."""
    if warning := trained_on(folder, spec, questions):
        raise DataError(f"{option}: {warning}; give questions that it was not trained on")


def run_card(summary: Mapping[str, Any], *, name: str, architecture: object, terms: str | None) -> str:
    """The model card in Markdown."""
    objective, settings = summary["settings"]["objective"], dict(summary["settings"])
    metric = summary["dev"].get(SELECT, MAP)
    title, best = "MAP" if metric == MAP else metric, summary[figure_name(metric)]
    rows = {
        "base": _file(summary["base"]) + (f", commit `{commit}`" if (commit := summary["base"]["commit"]) else ""),
        "data": _file(summary["data"]),
        "chosen on": f"{_file(summary['dev'])}, best {title} {best:.2f}{_at(summary)}",
        "strategy": f"`{objective['strategy']}`, teachers: {', '.join(map(_teacher, summary['teachers'])) or 'none'}",
        "seed": summary["settings"]["train"]["seed"],
        "steps": _steps(summary),
        "run": f"`{summary['digest']}`",
        "software": "; ".join(_versions(each) for each in summary["software"]),
    }
    # The dev figure of the model, then those of its teachers.
    figures = [(summary["dev"]["name"], summary["dev"]["questions"], title, f"{best:.2f}")]
    for teacher in summary["teachers"]:
        if teacher.get("dev_map") is not None:
            metric = f"MAP of the teacher `{teacher['name']}`"
            figures.append((teacher["dev"], teacher["questions"], metric, f"{teacher['dev_map']:.2f}"))
    card = CARD.format(
        name=name,
        architecture=architecture,
        verb=summary["verb"],
        date=datetime.now(UTC).date().isoformat(),
        rows="\n".join(f"| {key} | {value} |" for key, value in rows.items()),
        figures="\n".join(f"| `{set_}` | {count} | {metric} | {value} |" for set_, count, metric, value in figures),
        recipe=json.dumps({"recipe": summary["recipe"]} | settings, indent=2),
    )
    return with_terms(card, terms)


def _without_folders(option: str) -> str:
    """`key=value`. A value that is a path out of the data's folder is cut to its last part."""
    key, equals, value = option.partition("=")
    return f"{key}{equals}{Path(value).name}" if value.startswith(("/", "~", "../")) else option


def _file(part: Mapping[str, Any]) -> str:
    return f"`{part['name']}` ({short_digest(part[SHA256])})"


def _teacher(teacher: Mapping[str, Any]) -> str:
    return f"`{teacher['name']}` ({teacher['revision'][:8]})"


def _at(summary: Mapping[str, Any]) -> str:
    return "" if summary.get("best_step") is None else f" at step {summary['best_step']}"


def _steps(summary: Mapping[str, Any]) -> str:
    planned, reached = summary["settings"]["steps"], summary["reached"]
    return f"{reached}" if reached == planned else f"{reached} of {planned}, then without gain"


def _software(calls: Sequence[Call]) -> list[dict[str, str]]:
    """The distinct software versions of the calls, in order."""
    distinct: list[dict[str, str]] = []
    for call in calls:
        if call.software not in distinct:
            distinct.append(call.software)
    return distinct


def _versions(software: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in software.items())


def _is_data(part: Any) -> bool:
    """True for a name with digests; the `run.json` of an imported model may be of any other form."""
    digests = part.get(SHA256) if isinstance(part, Mapping) else None
    return isinstance(digests, Mapping) and all(isinstance(each, str) for each in (part.get("name"), *digests.values()))

"""`cerberank results table`: several systems on several data sets in one table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from cerberank_models.checkpoint.atomic import write_bytes, write_json
from cerberank_models.output import UsageError, say, say_written
from cerberank_training.commands.evaluation.evaluate_options import Measures
from cerberank_training.data import Subset
from cerberank_training.evaluation.measures import parse_measures
from cerberank_training.evaluation.systems.comparison import SystemTable, compare_systems
from cerberank_training.evaluation.systems.folders import read_systems
from cerberank_training.evaluation.systems.rendering import latex_table, markdown_table

AP = parse_measures("AP")


def table(
    *systems: Path,
    baseline: str | None = None,
    measures: Measures = AP,
    ranking: str = "final",
    subset: Subset = "clean",
    json: Path | None = None,
    latex: Path | None = None,
) -> list[SystemTable]:
    """Put several systems on several data sets into one table, tested against a baseline.

    Each system is a folder that holds the per-question file of each data set: SET.jsonl, written by `evaluate
    --per-question SYSTEM/SET.jsonl`. A system of several runs, such as one for each seed, has a folder for each run,
    SYSTEM/RUN/SET.jsonl: a question counts with its mean over the runs. All systems need the same sets, with the same
    candidates or judgements.

    Args:
        systems: Folder of a system's per-question files.
        baseline: Name of the folder of the system that the others are tested against.
        measures: Measures by the names of ir_measures, such as 'AP nDCG@10', a table for each (default: AP).
        ranking: Row of `evaluate` to take from every file, such as `exit 1`.
        subset: Questions that count (docs/evaluation.md).
        json: File to write all figures and p-values to.
        latex: File to write the tables to.
    """
    if not systems:
        raise UsageError("name the folder of a system")
    read = read_systems(list(systems), ranking=ranking)
    results = [
        compare_systems(read, measure, baseline=baseline, ranking=ranking, subset=subset) for measure in measures
    ]
    say("\n\n".join(markdown_table(result) for result in results))
    if json:
        write_json(json, {"ranking": ranking, "subset": subset, "tables": [asdict(result) for result in results]})
    if latex:
        write_bytes(latex, ("\n\n".join(latex_table(result) for result in results) + "\n").encode())
    say_written((json, "all figures and p-values"), (latex, "the tables"))
    return results

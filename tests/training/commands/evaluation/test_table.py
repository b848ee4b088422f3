"""`cerberank results table` by the verb: what is printed and written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.program import program
from tests.training.evaluation.systems.systems import write_system

evaluate = program("evaluate")
main = program("results table")


SETS = {"nf_corpus": 40, "scifact": 3}


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    return [
        str(write_system(tmp_path / name, noise, SETS, seed=seed))
        for seed, (name, noise) in enumerate({"base": 2.0, "ours_v2": 0.3}.items())
    ]


def test_a_table_marks_what_differs_from_the_baseline(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On forty questions, not on three; several seeds are one row with their spread. LaTeX has the same figures."""
    for seed in (4, 5, 6):
        write_system(tmp_path / "seeds" / str(seed), 0.3, SETS, seed=seed)
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "latex")}
    options = [part for kind, path in files.items() for part in (f"--{kind}", str(path))]
    systems = [*folders, str(tmp_path / "seeds")]
    assert main([*systems, "--baseline", "base", "--measures", "AP nDCG@10", *options]) == 0
    content = json.loads(files["json"].read_text())
    (first, second), out = content["tables"], capsys.readouterr().out
    cell, few = (first["cells"]["ours_v2"][name] for name in SETS)
    seeds = first["cells"]["seeds"]["nf_corpus"]
    mean, spread = f"{seeds['mean']:.1f}", f"{seeds['spread']:.1f}"
    assert f"| seeds (3 runs) | {mean} ± {spread}†‡ | " in out
    base = [f"{row['mean']:.1f}" for row in first["cells"]["base"].values()]
    assert out.splitlines()[:4] == [
        "| AP | nf_corpus (40) | scifact (3) | mean |",
        "| --- | --- | --- | --- |",
        f"| base | {base[0]} | {base[1]} | {first['means']['base']:.1f} |",
        f"| ours_v2 | {cell['mean']:.1f}†‡ | {few['mean']:.1f} | {first['means']['ours_v2']:.1f} |",
    ]
    assert "† / ‡: differs from base with p < 0.05 by Student's / Wilcoxon's paired test over questions" in out
    assert second["measure"] == "nDCG@10"
    assert seeds["runs"] == 3
    latex = files["latex"].read_text()
    assert f"{mean} $\\pm$ {spread}$^{{\\dagger}}$" in latex
    assert f"ours\\_v2 & {cell['mean']:.1f}$^{{\\dagger}}$$^{{\\ddagger}}$ & {few['mean']:.1f} & " in latex


def test_runs_of_others_are_systems_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs with other documents over two sets of judgements, by the verbs alone."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.qrels").write_text("1 0 d1 1\n2 0 d2 2\n")
        for system, document in (("bm25", "d9"), ("dense", "d1")):
            run = tmp_path / f"{system}.{name}"
            run.write_text(f"1 Q0 {document} 1 2.5 t\n2 Q0 d2 1 2 t\n")
            out = tmp_path / "systems" / system / f"{name}.jsonl"
            files = ["--run", str(run), "--qrels", str(tmp_path / f"{name}.qrels"), "--per-question", str(out)]
            assert evaluate(files) == 0
    capsys.readouterr()
    assert main([str(tmp_path / "systems" / "bm25"), str(tmp_path / "systems" / "dense"), "--measures", "R@1"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| bm25 | 50.0 | 50.0 | 50.0 |",
        "| dense | 100.0 | 100.0 | 100.0 |",
    ]

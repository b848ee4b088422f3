from __future__ import annotations

import json
from pathlib import Path

from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.workload import Workload


def test_tasks_are_the_same_for_the_same_settings_and_have_no_duplicates() -> None:
    """Candidates are distinct, because the service scores identical ones only once."""
    first, again, other = (Workload(BenchmarkSettings()).task(50, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first.texts)) == 50


def test_real_candidates_are_distinct_and_not_cut(tmp_path: Path) -> None:
    """With more candidates asked for than the data has, they are distinct, and too long ones are left out."""
    path = tmp_path / "questions.jsonl"
    texts = ["it is blue", "it is " + "very " * 80 + "blue", "it is red"]
    candidates = [{"text": text, "label": int(text.endswith("red"))} for text in texts]
    path.write_text(json.dumps({"question": "which colour ?", "candidates": candidates}) + "\n")
    task = Workload(BenchmarkSettings(data=(f"jsonl:{path}",), words=(1, 60))).task(5)
    assert task.question == "which colour ?"
    assert len(set(task.texts)) == 5
    assert {text.split(maxsplit=1)[1] for text in task.texts} == {"it is blue", "it is red"}

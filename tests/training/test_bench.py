from __future__ import annotations

import json
from pathlib import Path

from tests.tiny import save_cross_encoder

from cerberank_training.commands.bench import main


def test_the_benchmark_compares_equal_results(tmp_path: Path) -> None:
    """A run on a tiny cross-encoder: both peers scored, the fp32 results equal, no claim about time."""
    source = save_cross_encoder("bert", tmp_path / "source", num_labels=1, vocab_size=300, max_position_embeddings=140)
    options = ["--model", str(source), "--candidates", "7", "--rounds", "1", "--json", str(tmp_path / "out.json")]
    main(options)
    (row,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert row["candidates"] == 7
    assert row["largest_difference"]["fp32"] <= 1e-3
    assert row["cross_encoder_seconds"] > 0
    assert set(row["speed_up"]) == {"fp32", "int8"}

"""Questions without labels, and an imported cross-encoder of random weights that orders them in some way."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.tiny import save_cross_encoder

from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions


def imported(folder: Path) -> Path:
    """A checkpoint as `cerberank import` writes it, without ONNX forms."""
    source = save_cross_encoder("bert", folder / "source", num_labels=1)
    import_model(str(source), folder / "imported", ImportOptions(name="random-tiny", forms=()))
    return folder / "imported"


def write_questions(path: Path, *, count: int = 60, candidates: int = 10, seed: int = 0) -> Path:
    """`count` questions of random letters, as `cerberank rank` reads them."""
    rng = random.Random(seed)
    lines = [
        {
            "question": f"what is {rng.choice('abcdefgh')} ?",
            "candidates": [" ".join(rng.choices("abcdefgh", k=rng.randint(1, 5))) for _ in range(candidates)],
        }
        for _ in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path

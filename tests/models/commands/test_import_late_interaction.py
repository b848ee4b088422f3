"""`cerberank import` of a ColBERT: a checkpoint whose first stage ranks alone, by the library's MaxSim."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import MultiVectorEncoder
from tests.late_interaction import FIXED, TEXTS, expected, multi_vector

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import CheckpointError, read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.commands.info import facts_of
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.first_stage.opening import open_encoder
from cerberank_models.ranker import Ranker

QUESTION = "how tall is the tower?"
ROUNDED = 2.0**-11
"""Half of what two vectors of float16 numbers may be off by in a cosine: a score is half a cosine."""


@pytest.fixture(scope="module")
def imported_colbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model`, a ColBERT of sentence-transformers, and `out`, its import in fp32."""
    folder = tmp_path_factory.mktemp("colbert")
    multi_vector(folder / "model", expansion=FIXED)
    import_model(str(folder / "model"), folder / "out", ImportOptions(forms=("fp32",), name="small-colbert"))
    return folder


def test_a_colbert_ranks_alone(imported_colbert: Path) -> None:
    """Order and scores are the library's; what a text has too much is told; a processor takes ONNX, and torch else."""
    counts, similarity = expected(MultiVectorEncoder(str(imported_colbert / "model")), QUESTION)
    wanted = (1 + similarity / counts[0]) / 2
    for backend in (None, "torch"):
        ranker = Ranker.load(imported_colbert / "out", backend=backend, threads=1)
        answer = ranker.rank(QUESTION, TEXTS)
        assert [each.index for each in answer.results] == np.argsort(-wanted).tolist()
        got = {each.index: each.score for each in answer.results}
        np.testing.assert_allclose([got[row] for row in range(len(TEXTS))], wanted, atol=ROUNDED)
        encoder = open_encoder(ranker.checkpoint)
        tokens = encoder.questions([QUESTION]).tokens + encoder.candidates(TEXTS).tokens
        assert (answer.warnings, answer.drop_schedule, answer.tokens) == ((), (), tokens)
        pairs = [(QUESTION, text) for text in TEXTS]
        np.testing.assert_allclose(ranker.predict(pairs), wanted, atol=ROUNDED)
    cut = ranker.rank(QUESTION, ["bees " * 99, "b"])
    assert [each.truncated for each in cut.results] == [each.index == 0 for each in cut.results]
    assert cut.warnings == ("the end of 1 candidate was not read: a text holds 61 tokens",)
    facts = facts_of(ranker.checkpoint)
    assert facts["network"] == "ColBERT of bert, 2 layers of width 32; it reads no pairs"
    assert facts["forms"] == ["weights", "onnx fp32"]


def test_what_pairs_need_is_refused(tmp_path: Path) -> None:
    """Stray files of pairs, pairs themselves, and an opaque graph."""
    multi_vector(tmp_path / "model")
    import_model(str(tmp_path / "model"), tmp_path / "out", ImportOptions(forms=()))
    checkpoint = read_checkpoint(tmp_path / "out")
    backend = open_backend(checkpoint, kind="torch")
    with pytest.raises(ValueError, match="no stage 0 of pairs"):
        backend.run(backend.start(checkpoint.encoder().encode(QUESTION, [])), 0)
    with pytest.raises(UnsupportedModelError, match="without --opaque"):
        import_model(str(tmp_path / "model"), tmp_path / "opaque", ImportOptions(opaque=True))
    with pytest.raises(UnsupportedModelError, match="max_length 99 is more than the 61 tokens"):
        import_model(str(tmp_path / "model"), tmp_path / "long", ImportOptions(max_length=99))
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    weights = manifest["files"]["first-stage/model.safetensors"]
    manifest["files"]["model.safetensors"] = weights
    (tmp_path / "out/model.safetensors").write_bytes((tmp_path / "out/first-stage/model.safetensors").read_bytes())
    (tmp_path / "out/manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"has model\.safetensors, but its config\.json has no stage of pairs"):
        read_checkpoint(tmp_path / "out")

"""Every kind of model through HTTP: the service answers as `Ranker` does, in each kind's own backend and precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.decoders import save_decoder
from tests.late_interaction import FIXED, multi_vector
from tests.opaque import save_deberta
from tests.service.conftest import Serve, once_ready
from tests.tiny import save_cross_encoder

from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.ranker import Ranker
from cerberank_service.versions.loading import load

BODY: dict[str, Any] = {
    "question": "how tall is the tower?",
    "candidates": ["it is 330 metres.", "the tower was built in 1889 by Eiffel. " * 9, "what do bees make", "."],
}
KINDS: dict[str, tuple[Callable[[Path], object], ImportOptions, str, str]] = {
    "opaque graph": (save_deberta, ImportOptions(forms=("fp32",)), "onnx", "fp32"),
    "decoder": (save_decoder, ImportOptions(), "torch", "fp32"),
    "late interaction": (lambda path: multi_vector(path, expansion=FIXED), ImportOptions(), "torch", "fp32"),
    "bf16": (lambda path: save_cross_encoder("electra", path), ImportOptions(forms=()), "torch", "bf16"),
    "fp16": (lambda path: save_cross_encoder("electra", path), ImportOptions(forms=()), "torch", "fp16"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_imported_model_is_served_as_it_ranks_in_python(kind: str, open_app: Serve, tmp_path: Path) -> None:
    """Scores, order, windows and warnings; decoders also follow the instruction of a request."""
    save, options, backend, precision = KINDS[kind]
    save(tmp_path / "qwen3-reranker")  # a decoder's prompt follows from the name
    import_model(str(tmp_path / "qwen3-reranker"), tmp_path / "out", options)
    settings: dict[str, Any] = {"backend": backend, "precision": precision, "threads": 1}
    client = once_ready(open_app(load, checkpoint=tmp_path / "out", **settings))
    ranker = Ranker.load(tmp_path / "out", **settings)
    for more in ({}, {"instruction": "Find texts about food."})[: 1 + (kind == "decoder")]:
        answer = client.post("/v1/rank", json=BODY | more | {"return_text": True}).raise_for_status().json()
        wanted = ranker.rank(**BODY, **more).to_json()
        scores, own = ([each.pop("score") for each in results["results"]] for results in (answer, wanted))
        assert scores == pytest.approx(own, abs=1e-6)
        assert len(set(scores)) == len(scores)
        assert {name: answer[name] for name in ("results", "warnings", "usage")} == {
            name: wanted[name] for name in ("results", "warnings", "usage")
        }

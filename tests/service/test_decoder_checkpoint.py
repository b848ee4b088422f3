"""Imported decoders through HTTP: instructions, windows, and what `/v1/models` says of scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.decoders import save_decoder
from tests.service.conftest import Serve, once_ready

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import CheckpointError, read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs
from cerberank_models.windows import AS_SERVED
from cerberank_service.versions.loading import load

QUESTION = "how tall is the tower?"
TEXTS = ["it is 330 metres.", "it was built in 1889 by Eiffel. " * 90, "."]
BODY: dict[str, Any] = {"question": QUESTION, "candidates": TEXTS}


@pytest.mark.parametrize("name", ["qwen3-reranker", "zerank"])
def test_a_decoder_is_served_with_its_instruction(name: str, open_app: Serve, tmp_path: Path) -> None:
    """As offline, with the model's own instruction and another one; one without a place for it refuses it."""
    import_model(str(save_decoder(tmp_path / name)), tmp_path / "out")
    checkpoint = read_checkpoint(tmp_path / "out")
    with pytest.raises(CheckpointError, match="A decoder is run by torch: CERBERANK_BACKEND=torch"):
        open_backend(checkpoint)
    client = once_ready(open_app(load, checkpoint=checkpoint.path, backend="torch", precision="fp32", threads=1))
    takes = name == "qwen3-reranker"
    entry = client.get("/v1/models").json()["models"][0]
    form = {
        "qwen3-reranker": "probability of the token 'yes' against 'no'",
        "zerank": "sigmoid of the logit of the token 'Yes' divided by 5",
    }
    assert (entry["score"], entry["instruction"]) == (form[name], takes)
    backend, encoder = open_backend(checkpoint, kind="torch", precision="fp32", threads=1), checkpoint.encoder()
    seen = []
    for instruction in (None, "Find texts about food."):
        response = client.post("/v1/rank", json=BODY | {"instruction": instruction})
        if instruction and not takes:
            assert (response.status_code, "no prompt that could hold it" in response.text) == (422, True)
            continue
        got = {each["index"]: each for each in response.raise_for_status().json()["results"]}
        assert 0 <= got[1]["window"]["start"] < got[1]["window"]["end"] <= len(TEXTS[1])
        pairs = encoder.encode(
            QUESTION, [Candidate(text=text) for text in TEXTS], windowing=AS_SERVED, instruction=instruction
        )
        seen.append(rank_pairs(backend, pairs).scores.tolist())
        assert [got[index]["score"] for index in range(len(TEXTS))] == pytest.approx(seen[-1], abs=1e-5)
    if takes:
        assert seen[0] != pytest.approx(seen[1], abs=1e-4)
        long = client.post("/v1/rank", json=BODY | {"instruction": "all about food, " * 200})
        assert (long.status_code, "shorten the instruction" in long.text) == (422, True)

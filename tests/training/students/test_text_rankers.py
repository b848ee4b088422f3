"""TRMD's systems on a pretrained encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.text_rankers import ENCODING, text_ranker
from tests.tiny import save_cross_encoder
from transformers import AutoModel, AutoTokenizer

from cerberank_models.network.texts import Texts
from cerberank_models.text_encoding import TextEncoder
from cerberank_training.students.text_rankers import (
    SYSTEMS,
    build_text_ranker,
    paper_training,
    released_objective,
)


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_the_encoder_is_hugging_faces(family: str, tmp_path: Path) -> None:
    """Token vectors of a text alone equal those of the model that the weights come from."""
    base = str(save_cross_encoder(family, tmp_path))
    ranker, tokenizer = build_text_ranker(SYSTEMS["twin"], base, name="twin", encoding=ENCODING, seed=1, dropout=0.0)
    text = "how tall is the tower" if family != "roberta" else "the tower"
    encoded = TextEncoder(tokenizer, ranker.config).questions([text])
    side = ranker.eval().alone(Texts.on(torch.device("cpu"), encoded))
    source = AutoModel.from_pretrained(base).eval()
    wanted = source(input_ids=torch.from_numpy(encoded.token_ids).long()[None]).last_hidden_state[0]
    assert torch.allclose(side.tokens, wanted, atol=1e-5)
    assert AutoTokenizer.from_pretrained(base).backend_tokenizer.to_str() == tokenizer.to_str()


def test_fresh_parts_follow_the_seed(tmp_path: Path) -> None:
    """Rankers 1 and 2 start differently, equal for equal seeds, and the encoder is the same for all."""
    base = str(save_cross_encoder("bert", tmp_path))
    first, again, other = (
        build_text_ranker(SYSTEMS["tr-twin"], base, name="s", encoding=ENCODING, seed=seed, dropout=0.0)[0].state_dict()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["first_ranker.dense.weight"], first["token_ranker.dense.weight"])
    assert not torch.equal(first["first_ranker.dense.weight"], other["first_ranker.dense.weight"])
    assert torch.equal(first["body.1.up.weight"], other["body.1.up.weight"])


def test_the_papers_settings() -> None:
    """Adam without decay of weights or rates, 1e-6 and 1e-3, 32 triples (TRMD section 3.1.3)."""
    config = paper_training(100)
    assert (config.learning_rate, config.fresh_learning_rate, config.questions_per_step) == (1e-6, 1e-3, 32)
    assert {config.rate(step) for step in range(100)} == {1.0}
    assert config.weight_decay == 0.0
    assert released_objective(SYSTEMS["trmd-twin"]).representations == "post_residual"
    assert released_objective(SYSTEMS["trmd-colbert"]).representations == "projected"


def test_every_system_has_a_network() -> None:
    """No system's rankers are refused by the config."""
    for system in SYSTEMS.values():
        shape = {name: getattr(system, name) for name in ("joint", "first_ranker", "token_ranker")}
        assert text_ranker(shape).config.joint == system.joint

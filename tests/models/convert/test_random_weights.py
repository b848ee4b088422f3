"""Checkpoints with random weights: marked as such, the same for the same seed, and served like any other."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import bert_tokenizer

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.config import RankerConfig
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.random_weights import SHAPES, random_config, random_ranker, write_random_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.golden import check_golden
from cerberank_models.rank_pairs import rank_pairs

NARROW = replace(SHAPES["MiniLM"], width=64, attention_heads=4, embedding=64, vocabulary=300)


def narrow(name: str = "narrow", *, body_layers: int = 11) -> RankerConfig:
    """Deep and narrow: three heads, two exits."""
    return random_config(name, NARROW, body_layers=body_layers, heads=3, head_layers=1, exits=(4, 8))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return write_random_checkpoint(tmp_path_factory.mktemp("random") / "a", narrow(), bert_tokenizer(), seed=3)


def test_it_is_marked_as_random_wherever_it_is_named(checkpoint: Checkpoint) -> None:
    """Name, version, source and model card."""
    assert checkpoint.config.name == "random-narrow"
    assert checkpoint.manifest.version == "random-seed-3"
    assert checkpoint.manifest.source == "random weights, not trained"
    assert "not trained, and its scores mean nothing" in (checkpoint.path / "README.md").read_text()
    assert (checkpoint.precisions, checkpoint.weights is None) == ((), False)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_it_passes_its_own_golden_check(checkpoint: Checkpoint, precision: str) -> None:
    """Random weights amplify no rounding: half precision is near enough to fp32 to be served."""
    check_golden(open_backend(checkpoint, kind="torch", precision=precision), checkpoint, precision)


def test_candidates_and_heads_get_different_scores(checkpoint: Checkpoint) -> None:
    """Twelve layers deep; BERT's usual initialisation would give all candidates of a question one score."""
    backend = open_backend(checkpoint, kind="torch", precision="fp32")
    for golden in checkpoint.golden:
        assert np.ptp(golden.scores["fp32"]) > 0.01
    question, texts = GOLDEN_TEXTS[0]
    pairs = checkpoint.encoder().encode(question, [Candidate(text=text) for text in texts])
    heads = rank_pairs(backend, pairs).heads
    assert heads is not None
    assert np.ptp(heads, axis=1).min() > 0.01


def test_weights_are_a_function_of_the_seed() -> None:
    """The same seed gives the same weights, whatever PyTorch's own generator is at, which is left alone."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = (random_ranker(narrow(), seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(value, same[name]) for name, value in one.items())
    assert not torch.equal(one["embeddings.tokens.weight"], other["embeddings.tokens.weight"])
    assert not torch.equal(one["body.0.query.weight"], other["body.0.query.weight"])


def test_what_would_mislead_or_fail_is_refused(tmp_path: Path) -> None:
    """A name that does not say random, a tokenizer with more tokens than embeddings, a folder that exists."""
    unmarked = narrow().model_copy(update={"name": "cerberank-mini"})
    with pytest.raises(ValueError, match="begins with 'random-', not 'cerberank-mini'"):
        write_random_checkpoint(tmp_path / "a", unmarked, bert_tokenizer())
    small = random_config("small", replace(NARROW, vocabulary=20), body_layers=1, heads=1, head_layers=1)
    with pytest.raises(ValueError, match="vocabulary has 20 entries"):
        write_random_checkpoint(tmp_path / "a", small, bert_tokenizer())
    with pytest.raises(FileExistsError):
        write_random_checkpoint(tmp_path, narrow(), bert_tokenizer())


def test_weights_alone_need_neither_onnx_nor_transformers(tmp_path: Path) -> None:
    """The gpu image has neither, and can make such a checkpoint."""
    tokenizer = tmp_path / "tokenizer.json"
    bert_tokenizer().save(str(tokenizer))
    script = (
        "import sys\n"
        "for name in ('onnx', 'onnxruntime', 'onnxscript', 'transformers'): sys.modules[name] = None\n"
        "from cerberank.cli import main\n"
        f"sys.exit(main(['checkpoint', 'random', 'B1', '1H1', {str(tmp_path / 'out')!r}, '--like', 'MiniLM',"
        f" '--tokenizer', {str(tokenizer)!r}]))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert read_checkpoint(tmp_path / "out").weights is not None

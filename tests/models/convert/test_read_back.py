"""Weights that are read back from ONNX graphs are those that were exported, whatever the exporter made of them."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from tests.bounds import LOGITS
from tests.tiny import ONE_STAGE, bert_tokenizer, random_pairs, random_ranker, roberta_tokenizer

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError, read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.convert.int8 import dequantise, measure_ranges, quantise
from cerberank_models.convert.read_back import read_back
from cerberank_models.encoding import Candidate
from cerberank_models.network.ranking_network import RankingNetwork


def exported(ranker: RankingNetwork, path: Path) -> Checkpoint:
    tokenizer = roberta_tokenizer() if ranker.config.transformer.family == "roberta" else bert_tokenizer()
    forms = Forms(precisions=("fp32",))
    export_checkpoint(ranker, tokenizer, path, card="", version="1", source="tests", forms=forms)
    return read_checkpoint(path)


def assert_same_network(network: RankingNetwork, wanted: RankingNetwork) -> None:
    """Equal weights but for the biases that cancel in a softmax, and equal scores."""
    state, expected = network.state_dict(), wanted.state_dict()
    differing = {name for name in expected if not torch.equal(state[name], expected[name])}
    last = wanted.config.architecture.head_layers - 1
    assert differing <= {f"heads.{head}.layers.{last}.key.bias" for head in range(len(wanted.heads))}
    pairs = random_pairs([9, 20, 14], types=wanted.config.transformer.type_vocab_size)
    arrays = [torch.from_numpy(array) for array in (pairs.token_ids, pairs.type_ids, pairs.offsets)]
    with torch.no_grad():
        assert (network.eval()(*arrays) - wanted.eval()(*arrays)).abs().max() < LOGITS


def test_fp32_graphs_hold_the_exact_weights(tiny_checkpoint: Path) -> None:
    """Three stages, three heads with absorbed projections."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    assert_same_network(read_back(checkpoint, "fp32"), load_ranker(checkpoint))


def test_int8_graphs_hold_what_quantisation_left(other_checkpoint: Path) -> None:
    """The same weights, to the last bit, as from the quantised network itself."""
    checkpoint = read_checkpoint(other_checkpoint)
    ranker, encoder = load_ranker(checkpoint), checkpoint.encoder()
    texts = [(line.question, [Candidate(text=each.text) for each in line.candidates]) for line in checkpoint.golden]
    ranges = measure_ranges(ranker, [encoder.encode(question, candidates) for question, candidates in texts])
    expected = copy.deepcopy(ranker)
    expected.load_state_dict(dequantise(quantise(ranker, ranges, margin=1.5).state_dict()))
    assert_same_network(read_back(checkpoint, "int8"), expected)


@pytest.mark.slow
def test_gated_feed_forwards_and_norms_without_biases_are_read(tmp_path: Path) -> None:
    """ModernBERT, whose keys and values are not absorbed: every weight of its fp32 graph."""
    ranker = random_ranker(family="modernbert", **ONE_STAGE)
    for norm in (parameter for parameter in ranker.parameters() if parameter.ndim == 1):
        torch.nn.init.normal_(norm, mean=1.0, std=0.2)  # equal norms of one input become one in the graph
    assert_same_network(read_back(exported(ranker, tmp_path / "one"), "fp32"), ranker)


@pytest.mark.slow
def test_heads_of_two_layers_and_one_token_type_are_read(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """B1 1H2 of RoBERTa; a graph that stands for another exporter's, of another network, is refused."""
    ranker = random_ranker(family="roberta", body_layers=1, heads=1, exits=(), num_hidden_layers=3)
    checkpoint = exported(ranker, tmp_path / "one")
    assert_same_network(read_back(checkpoint, "fp32"), ranker)
    wrong = {"onnx/fp32/stage-0.onnx": tiny_checkpoint / "onnx/fp32/stage-0.onnx"}
    mixed = revise_checkpoint(checkpoint, tmp_path / "mixed", version="2", files=wrong)
    with pytest.raises(CheckpointError, match=r"stage-0\.onnx has other operations than"):
        read_back(mixed, "fp32")
    with pytest.raises(CheckpointError, match="no ONNX graphs in 'fp16'"):
        read_back(checkpoint, "fp16")

"""The whole network against an encoding of one window at a time, without packing (TRMD section 2.1)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text_rankers import JOINT_TWIN, NAMES, SHAPES, TR_TWIN, rows, text_ranker, texts, window_ids
from torch import Tensor

from cerberank_models.network.layout import PackedLayout, PaddedLayout
from cerberank_models.network.text_ranker import ColbertRanker, ResidualRanker, TextRanker
from cerberank_models.network.texts import Texts
from cerberank_models.transformer import Family

ASKED, SAID, OWNERS = [[4], [7]], [[5, 9], [3], [6, 4, 8]], [0, 0, 1]


def encode(ranker: TextRanker, ids: list[int], types: list[int]) -> Tensor:
    """One sequence alone, `[S, D]`."""
    layout = PaddedLayout(torch.ones(1, len(ids), dtype=torch.bool))
    hidden = ranker.encoder.embed(torch.tensor([ids]), torch.tensor([types]), layout)
    normal: Tensor = ranker.norm(ranker.encoder.run(hidden, layout, 0, ranker.config.transformer.layers))
    return normal[0]


def sides(ranker: TextRanker, questions: Texts, documents: Texts, n: int, owner: int) -> tuple[list[Any], ...]:
    """(first, tokens) of the question and of document n, as lists of vectors, window by window."""
    question = window_ids(questions, owner).tolist()
    windows = range(int(documents.windows[n]), int(documents.windows[n + 1]))
    contents = [window_ids(documents, window).tolist() for window in windows]
    if not ranker.config.joint:
        alone = encode(ranker, question, [0] * len(question))
        said = [encode(ranker, content, [0] * len(content)) for content in contents]
        return [alone[0], list(alone)], [sum(s[0] for s in said) / len(said), [v for s in said for v in s]]
    extra = 1 if ranker.config.transformer.family == "roberta" else 0
    whole = []
    for content in contents:
        types = [0] * (len(question) + extra) + [0 if extra else 1] * (len(content) - 1)
        whole.append(encode(ranker, [*question, *[3] * extra, *content[1:]], types))
    first = sum(hidden[0] for hidden in whole) / len(whole)
    asked = [sum(hidden[place] for hidden in whole) / len(whole) for place in range(len(question))]
    said = [v for hidden in whole for v in [hidden[0], *hidden[len(question) + extra :]]]
    return [first, asked], [first, said]


def reference(ranker: TextRanker, question: list[Any], document: list[Any]) -> float:
    total = 0.0
    if ranker.first_ranker is not None:
        x = torch.maximum(question[0], document[0])
        if isinstance(ranker.first_ranker, ResidualRanker):
            x = ranker.first_ranker.dense.weight @ x + ranker.first_ranker.dense.bias + x
        total += float(ranker.first_ranker.output.weight[0] @ x + ranker.first_ranker.output.bias)
    if isinstance(ranker.token_ranker, ColbertRanker):
        weight = ranker.token_ranker.project.weight
        asked, said = ([weight @ v / (weight @ v).norm() for v in each[1]] for each in (question, document))
        total += sum(max(float(q @ d) for d in said) for q in asked)
    elif ranker.token_ranker is not None:
        x = torch.maximum(*(torch.stack(each[1]).mean(dim=0) for each in (question, document)))
        x = ranker.token_ranker.dense.weight @ x + ranker.token_ranker.dense.bias + x
        total += float(ranker.token_ranker.output.weight[0] @ x + ranker.token_ranker.output.bias)
    return total


@pytest.mark.parametrize("family", ["albert", "bert", "modernbert", "roberta"])
@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
@torch.no_grad()
def test_every_shape_is_its_equations(shape: dict[str, Any], family: Family) -> None:
    """Scores, the tensors to be distilled, and the order of tokens; several windows, a question for two documents."""
    ranker, questions, documents = text_ranker(shape, family=family), texts(ASKED), texts(SAID, seed=1)
    reading = ranker(questions, documents, torch.tensor(OWNERS))
    for n, owner in enumerate(OWNERS):
        question, document = sides(ranker, questions, documents, n, owner)
        assert float(reading.scores[n]) == pytest.approx(reference(ranker, question, document), abs=2e-4)
        if shape.get("first_ranker") == "linear":
            assert torch.allclose(reading.cls[n], question[0], atol=1e-5)
        for given_side, wanted in ((reading.question, question), (reading.document, document)):
            assert torch.allclose(given_side.first[n], wanted[0], atol=1e-5)
            tokens = given_side.tokens[int(given_side.offsets[n]) : int(given_side.offsets[n + 1])]
            if not isinstance(ranker.token_ranker, ColbertRanker):
                assert torch.allclose(tokens, torch.stack(wanted[1]), atol=1e-5)
            assert len(tokens) == len(wanted[1])
    assert (reading.cls is None) == ("first_ranker" not in shape)
    assert (reading.residual is None) == (shape.get("token_ranker") != "twin")


RANKERS = [text_ranker(shape) for shape in SHAPES]


@settings(max_examples=25)
@given(
    st.integers(0, len(SHAPES) - 1),
    st.lists(st.lists(st.integers(2, 18), min_size=1, max_size=3), min_size=2, max_size=4),
    st.lists(st.integers(2, 14), min_size=2, max_size=2),
)
@torch.no_grad()
def test_padding_changes_nothing(kind: int, said: list[list[int]], asked: list[int]) -> None:
    """A document scores the same alone as beside longer and shorter ones, whatever padding those bring."""
    questions, documents = texts([[length] for length in asked]), texts(said, seed=1)
    owners = [n % 2 for n in range(len(said))]
    together = RANKERS[kind](questions, documents, torch.tensor(owners)).scores
    for n, owner in enumerate(owners):
        alone = RANKERS[kind](rows(questions, [owner]), rows(documents, [n]), torch.tensor([0])).scores
        assert torch.allclose(alone[0], together[n], atol=1e-4)


@pytest.mark.parametrize("shape", [TR_TWIN, JOINT_TWIN], ids=["apart", "joint"])
@torch.no_grad()
def test_twinberts_mean_may_leave_special_tokens_out(shape: dict[str, Any]) -> None:
    """Those of every window; against each text's other tokens by hand. An empty text has the mean 0."""
    ranker = text_ranker({**shape, "mean": "text"})
    questions, documents = texts(ASKED), texts([*SAID, [2]], seed=1)
    owners = torch.tensor([*OWNERS, 1])
    reading = ranker(questions, documents, owners)
    asked = torch.cat([window_ids(questions, owner) for owner in owners.tolist()])
    for side, ids in ((reading.question, asked), (reading.document, documents.token_ids)):
        for n, (start, stop) in enumerate(zip(side.offsets.tolist(), side.offsets.tolist()[1:], strict=False)):
            wanted = [side.tokens[place] for place in range(start, stop) if ids[place] not in (2, 3)]
            mean = torch.stack(wanted).mean(dim=0) if wanted else torch.zeros(ranker.config.transformer.hidden_size)
            assert torch.allclose(side.mean()[n], mean, atol=1e-5)
    assert torch.isfinite(reading.scores).all()
    assert not torch.allclose(reading.scores, text_ranker(shape)(questions, documents, owners).scores, atol=1e-3)
    if not ranker.config.joint:  # a first stage's network gives the same, on padded texts too (its ONNX graph)
        single = texts([[5], [9], [2]])
        lengths = single.offsets.diff()
        mask = torch.arange(9)[None, :] < lengths[:, None]
        padded = torch.zeros(3, 9, dtype=torch.int32).masked_scatter(mask, single.token_ids)
        means = ranker.alone(single).mean()
        for ids, layout in ((single.token_ids, PackedLayout.of(single.offsets)), (padded, PaddedLayout(mask))):
            fixed, _ = ranker.read(ids, torch.zeros_like(ids), layout)
            assert torch.allclose(fixed[:, -means.shape[1] :], means, atol=1e-5)


def test_a_bi_encoder_scores_from_sides_computed_apart() -> None:
    """A first stage in service computes documents before the question is known."""
    ranker, questions, documents = text_ranker(TR_TWIN), texts(ASKED), texts(SAID, seed=1)
    stored = ranker.alone(documents)
    owners = torch.tensor(OWNERS)
    apart = ranker.score(ranker.alone(questions).select(owners), stored).scores
    assert torch.equal(apart, ranker(questions, documents, owners).scores)

"""Sampling, schedule, losses and the loop: deterministic, resumable, and it learns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.tiny import ENCODING, bert_tokenizer, random_ranker

from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.ranker import Ranker
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.losses import listwise_loss, pointwise_loss
from cerberank_training.sampling import NegativeSampling, Sampler
from cerberank_training.train import Run, TrainConfig

CONFIG = TrainConfig(
    steps=6,
    questions_per_step=2,
    precision="fp32",
    evaluate_every=3,
    save_every=2,
    train_token_embeddings=True,
    dropout=0.1,
)


def questions(count: int = 5) -> list[Question]:
    """The right candidate repeats the question's letter."""
    letters = "abcde"
    return [
        Question(
            id=letter,
            text=f"what is {letter} ?",
            candidates=(
                LabelledCandidate(Candidate(text=f"{letter} is a city"), 1),
                *(LabelledCandidate(Candidate(text=f"{other} is a city"), 0) for other in letters if other != letter),
            ),
        )
        for letter in letters[:count]
    ]


def sampler(**changes: int) -> Sampler:
    return Sampler(questions(), NegativeSampling(own=changes.get("own", 2), hard=0, random=0), seed=1)


def encoder() -> PairEncoder:
    return PairEncoder(bert_tokenizer(), family="bert", config=ENCODING, type_vocab_size=2)


def run(folder: Path, config: TrainConfig = CONFIG, ranker: Ranker | None = None) -> Run:
    return Run(folder, ranker or random_ranker(), sampler(), encoder(), config)


def test_every_epoch_visits_every_question_once() -> None:
    """Five steps of one question are an epoch, in an order of its own; steps repeat exactly."""
    first = [sampler().step(step, 1)[0].question for step in range(5)]
    second = [sampler().step(step, 1)[0].question for step in range(5, 10)]
    assert sorted(first) == sorted(second) == sorted(question.text for question in questions())
    assert sampler().step(3, 2) == sampler().step(3, 2)


def test_a_group_starts_with_its_positive() -> None:
    """One positive, then the number of negatives asked for."""
    group = sampler().step(0, 1)[0]
    assert group.labels == (1.0, 0.0, 0.0)
    assert group.candidates[0].text.startswith(group.question.split()[2])


def test_hard_negatives_share_rare_words() -> None:
    """Of an article's sentences the ones with the question's words are drawn first."""
    outside = [Candidate(text=text) for text in ("nothing here", "what is b not", "the river b", "word")]
    hard = Sampler(
        questions(),
        NegativeSampling(own=0, hard=1, hard_pool=1, random=0),
        seed=1,
        outside=lambda question: outside if "b" in question.text else [],
    )
    groups = [hard.step(step, 1)[0] for step in range(5)]
    (group,) = [group for group in groups if group.question == "what is b ?"]
    assert group.candidates[1].text == "what is b not"


def test_no_positive_nothing_to_learn() -> None:
    """An unlabelled set is refused before anything is loaded."""
    with pytest.raises(ValueError, match="positive"):
        Sampler([], NegativeSampling(), seed=1)


def test_losses_sum_over_heads_and_average_over_examples() -> None:
    """Two equal heads cost twice one; groups of different size count alike."""
    one = torch.tensor([[1.0], [-1.0], [0.5], [0.0], [2.0]])
    labels, offsets = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0]), torch.tensor([0, 2, 5])
    for loss in (lambda x: pointwise_loss(x, labels), lambda x: listwise_loss(x, labels, offsets)):
        assert loss(one.expand(5, 2)).item() == pytest.approx(2 * loss(one).item())
    groups = [one[:2, 0].log_softmax(0)[0], one[2:, 0].log_softmax(0)[0]]
    assert listwise_loss(one, labels, offsets).item() == pytest.approx(-sum(groups).item() / 2)


def test_stages_are_drawn_uniformly_after_the_warm_start() -> None:
    """CT section 3.3: each stage a third of the time; the same in every process."""
    config = TrainConfig(steps=4000, final_only=0.25)
    drawn = [config.stage(step, 3) for step in range(4000)]
    assert set(drawn[:1000]) == {2}
    for stage in range(3):
        assert abs(drawn[1000:].count(stage) - 1000) < 100
    assert drawn == [config.stage(step, 3) for step in range(4000)]


def test_the_learning_rate_is_a_triangle() -> None:
    """Up over the warm-up, down to almost nothing."""
    config = TrainConfig(steps=100, warmup=0.1)
    rates = [config.rate(step) for step in range(100)]
    assert max(rates) == 1.0
    assert rates.index(1.0) == 9
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] == pytest.approx(1 / 90)


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Interrupted after the state of step 4 and resumed: the same weights and log as without interruption."""
    whole, cut = random_ranker(), random_ranker()
    run(tmp_path / "whole", ranker=whole).train(lambda ranker: 1.0)

    class Killed(Exception):
        pass

    def fail_in_step_6(ranker: Ranker) -> float:
        if killed.step_count() == 6:
            raise Killed
        return 1.0

    class Counting(Run):
        def step_count(self) -> int:
            return self._step

    killed = Counting(tmp_path / "cut", cut, sampler(), encoder(), CONFIG)
    with pytest.raises(Killed):
        killed.train(fail_in_step_6)
    resumed = random_ranker(seed=9)
    run(tmp_path / "cut", ranker=resumed).train(lambda ranker: 1.0)
    state = torch.load(tmp_path / "whole" / "state.pt", weights_only=True)["ranker"]
    again = torch.load(tmp_path / "cut" / "state.pt", weights_only=True)["ranker"]
    assert all(torch.equal(state[name], again[name]) for name in state)
    with pytest.raises(ValueError, match="another configuration"):
        run(tmp_path / "cut", replace(CONFIG, seed=2))


def test_the_best_weights_are_kept(tmp_path: Path) -> None:
    """Dev MAP falls after step 3: the weights of step 3 come back."""
    ranker = random_ranker()
    values = iter([80.0, 70.0])
    assert run(tmp_path, ranker=ranker).train(lambda ranker: next(values)) == 80.0
    best = torch.load(tmp_path / "best.pt", weights_only=True)
    assert all(torch.equal(best[name], value) for name, value in ranker.state_dict().items())


def test_weights_of_the_warm_start_are_not_kept(tmp_path: Path) -> None:
    """The best dev MAP of the steps that train the heads alone does not count: the exits are random then."""
    values = iter([99.0, 70.0])
    config = replace(CONFIG, final_only=0.5)
    assert run(tmp_path, config).train(lambda ranker: next(values)) == 70.0


def test_training_learns_to_match_letters(tmp_path: Path) -> None:
    """From random weights the heads' loss falls to less than half on five questions."""
    config = replace(
        CONFIG,
        steps=120,
        learning_rate=3e-3,
        fresh_learning_rate=3e-3,
        dropout=0.0,
        final_only=1.0,
        evaluate_every=120,
        save_every=120,
        questions_per_step=5,
    )
    run(tmp_path, config).train(lambda ranker: 0.0)
    losses = [
        record["loss"]
        for record in map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
        if "loss" in record
    ]
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])


def test_frozen_token_embeddings_stay(tmp_path: Path) -> None:
    """By default words that the data set lacks keep their meaning: the table does not move."""
    ranker = random_ranker()
    before = ranker.embeddings.tokens.weight.clone()
    run(tmp_path, replace(CONFIG, train_token_embeddings=False), ranker).train(lambda ranker: 0.0)
    assert torch.equal(ranker.embeddings.tokens.weight, before)

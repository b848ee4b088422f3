"""The training loop is deterministic and resumable, and the network learns."""

from __future__ import annotations

import json
import math
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import ENCODING, random_ranker
from tests.training.letters import encoder, sampler

from cerberank_models.encoding import Candidate
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_models.transformer import Family
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.data.sampling import ExampleOptions, Group, Sampler
from cerberank_training.learning.batch import Batch
from cerberank_training.learning.settings import StudentConfig
from cerberank_training.learning.student_job import TokenSteps, first_pairs_cut, student_learner
from cerberank_training.runs import loop
from cerberank_training.runs.computing import tensor_cores
from cerberank_training.runs.loop import BatchLoss, DivergenceError, Learner, Loop, Source
from cerberank_training.runs.tracking.log_file import results_of_log

CONFIG = StudentConfig(
    steps=6,
    examples_per_step=2,
    precision="fp32",
    evaluate_every=3,
    save_every=2,
    train_token_embeddings=True,
    dropout=0.1,
)

LETTERS, GROUPS = encoder(), sampler()


@pytest.fixture
def spawned() -> Iterator[None]:
    """Processes that begin anew, without what this one has in memory."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


def run(
    folder: Path,
    config: StudentConfig = CONFIG,
    ranker: RankingNetwork | None = None,
    groups: Source[Group] | None = None,
    workers: int = 0,
) -> Loop[RankingNetwork, Group, Batch]:
    ranker = ranker or random_ranker(dropout=config.dropout)
    return Loop(folder, student_learner(ranker, groups or sampler(), encoder(), config), workers=workers)


@pytest.mark.parametrize("family", ["bert", "albert"])  # ALBERT's layer stands at all depths
def test_gradient_checkpointing_gives_the_same_weights_with_less_memory(family: Family, tmp_path: Path) -> None:
    """Dropout is the same in the second run of a layer; of three layers fewer tensors wait for the gradient."""
    plain, lean = (random_ranker(family=family, dropout=CONFIG.dropout) for _ in range(2))
    kept = dict[str, int]()
    for name, ranker in (("plain", plain), ("lean", lean)):
        sizes: list[int] = []

        def keep(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        config = replace(CONFIG, gradient_checkpointing=name == "lean")
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            run(tmp_path / name, config, ranker).train(lambda ranker: 1.0)
        kept[name] = sum(sizes)
    for one, other in zip(plain.parameters(), lean.parameters(), strict=True):
        assert torch.equal(one, other)
    assert kept["lean"] < kept["plain"] / 2


class Broken:
    """Groups; reading those of step 4 fails."""

    def step(self, step: int, size: int) -> list[Group]:
        if step == 4:
            raise OSError("the groups cannot be read")
        return GROUPS.step(step, size)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than a machine has processors
def test_batches_of_other_processes_are_the_same(tmp_path: Path) -> None:
    """Two of them make four steps, and one the rest from the state: the weights of this process's, with dropout too."""
    config = replace(CONFIG, tokens_per_step=70, decay=False)
    run(tmp_path / "own", config).train(lambda ranker: 1.0)
    for steps, workers in ((4, 2), (6, 1)):
        run(tmp_path / "ahead", replace(config, steps=steps), workers=workers).train(lambda ranker: 1.0)
    assert multiprocessing.active_children() == []
    own, other = (torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("own", "ahead"))
    assert other["position"] == own["position"]
    assert all(torch.equal(value, other["ranker"][name]) for name, value in own["ranker"].items())


def test_workers_are_begun_without_a_fork(tmp_path: Path, spawned: None) -> None:
    """By spawn, as on macOS and Windows; a forkserver copies the same: the weights of this process's."""
    for workers in (0, 1):
        run(tmp_path / str(workers), workers=workers).train(lambda _: 1.0)
    own, other = (torch.load(tmp_path / name / "state.pt", weights_only=True)["ranker"] for name in "01")
    assert all(torch.equal(value, other[name]) for name, value in own.items())


def test_a_batch_that_cannot_be_prepared_ends_the_run(tmp_path: Path) -> None:
    """With the error itself, after the steps before it."""
    with pytest.raises(OSError, match="the groups cannot be read"):
        run(tmp_path, groups=Broken()).train(lambda ranker: 1.0)
    assert torch.load(tmp_path / "state.pt", weights_only=True)["step"] == 4


@pytest.mark.parametrize("clip", [1e-3, 0.0])
def test_gradients_are_bounded_or_not(clip: float, tmp_path: Path) -> None:
    """Adam's first moment after one step is a tenth of the gradients that it was given; 0 leaves them as they are."""
    run(tmp_path, replace(CONFIG, steps=1, clip=clip, dropout=0.0)).train(lambda ranker: 1.0)
    (norm,) = [
        row["gradient_norm"]
        for row in map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
        if "gradient_norm" in row
    ]
    states = torch.load(tmp_path / "state.pt", weights_only=True)["optimizer"]["state"].values()
    moments = torch.cat([state["exp_avg"].flatten() for state in states])
    assert norm > 1e-3
    assert 10 * float(moments.norm()) == pytest.approx(clip or norm, rel=1e-3)


def test_the_best_weights_are_kept(tmp_path: Path) -> None:
    """Dev MAP falls after step 3: the weights of step 3 come back. That of the start is logged, and chooses nothing."""
    ranker = random_ranker()
    values = iter([90.0, 80.0, 70.0])
    assert run(tmp_path, ranker=ranker).train(lambda ranker: next(values)) == 80.0
    best = torch.load(tmp_path / "best.pt", weights_only=True)
    assert all(torch.equal(best[name], value) for name, value in ranker.state_dict().items())
    assert results_of_log(tmp_path, counts=bool)["start"] == 90.0


class Nothing:
    """A batch without examples, for losses that need none."""

    pairs = 1

    def on(self, device: torch.device) -> Nothing:
        return self


def loop_of(
    folder: Path,
    network: RankingNetwork,
    config: StudentConfig,
    loss: BatchLoss[Nothing],
    is_fresh: Callable[[str], bool] = lambda name: False,
) -> Loop[RankingNetwork, int, Nothing]:
    learner = Learner(
        network=network,
        config=config,
        items=lambda step, position: [step],
        batch=lambda items: Nothing(),
        loss=loss,
        is_fresh=is_fresh,
    )
    return Loop(folder, learner)


class Diverging:
    """The loss of a network's embeddings, or another one in step 4, of which each step is counted from 1."""

    def __init__(self, network: RankingNetwork, fourth: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._weight, self._fourth = network.get_parameter("embeddings.tokens.weight"), fourth

    def __call__(self, step: int, forward: torch.nn.Module, batch: Nothing, share: float) -> tuple[torch.Tensor, dict]:
        loss = self._weight.square().sum()
        return (self._fourth(loss) if step == 3 else loss), {}


def diverging(
    folder: Path, fourth: Callable[[torch.Tensor], torch.Tensor] = lambda loss: loss
) -> Loop[RankingNetwork, int, Nothing]:
    network = random_ranker()
    config = replace(CONFIG, evaluate_every=2, save_every=1, learning_rate=0.5, warmup=1)
    return loop_of(folder, network, config, Diverging(network, fourth))


@pytest.mark.parametrize(
    ("fourth", "told"),
    [
        (lambda loss: loss * math.nan, "the loss is nan"),
        (lambda loss: loss + (0.0 * loss).sqrt(), "the norm of the gradients is (nan|inf)"),
    ],
)
def test_a_diverged_run_ends_with_its_last_good_state(
    fourth: Callable[[torch.Tensor], torch.Tensor], told: str, tmp_path: Path
) -> None:
    """The message names step and rate; the log has no figure of the step; the state of step 3 can be used."""
    with pytest.raises(DivergenceError, match=rf"^{told} in step 4, with learning rate 0\.3: .* lower --learning-rate"):
        diverging(tmp_path, fourth).train(lambda ranker: 1.0)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert state["step"] == 3
    assert all(value.isfinite().all() for value in state["ranker"].values())
    assert "null" not in (log := (tmp_path / "log.jsonl").read_text())
    assert json.loads(log.splitlines()[-1])["step"] == 3
    diverging(tmp_path).train(lambda ranker: 1.0)
    assert torch.load(tmp_path / "state.pt", weights_only=True)["step"] == 6


def test_overflowing_gradients_of_fp16_lower_the_scale_alone(tmp_path: Path) -> None:
    """Such steps change no weight, and the scale is part of the state; below 1 they mean that training has diverged."""
    network, config = random_ranker(), replace(CONFIG, precision="fp16", steps=4, evaluate_every=4)
    before = {name: weight.clone() for name, weight in network.state_dict().items()}

    def overflowing(step: int, forward: torch.nn.Module, *_: object) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        weight = network.get_parameter("embeddings.tokens.weight")
        return (weight.sum() * 0.0 + 1e-38).sqrt() * 0.0 + (0.0 * weight.sum()).sqrt(), {}

    loop_of(tmp_path, network, config, overflowing).train(lambda ranker: 1.0)
    assert all(torch.equal(weight, before[name]) for name, weight in network.state_dict().items())
    assert torch.load(tmp_path / "state.pt", weights_only=True)["scaler"]["scale"] == 2.0**12
    with pytest.raises(DivergenceError, match=r"the norm of the gradients is nan in step 17, "):
        loop_of(tmp_path, network, replace(config, steps=30), overflowing).train(lambda ranker: 1.0)


def test_scores_on_dev_that_are_not_finite_end_a_run_too(tmp_path: Path) -> None:
    """Weights may give such scores before a loss does; before the first step the base is at fault, not the rate."""

    def dev(ranker: RankingNetwork) -> float:
        if (tmp_path / "state.pt").exists():
            raise NonFiniteScoreError("question 'a': stage 0 gave a score that is not a number")
        return 1.0

    with pytest.raises(DivergenceError, match=r"^on dev question 'a': .* in step 2, with learning rate 0\.5: "):
        diverging(tmp_path).train(dev)
    assert torch.load(tmp_path / "state.pt", weights_only=True)["step"] == 1
    (tmp_path / "base").mkdir()
    with pytest.raises(NonFiniteScoreError, match=r"^before the first step, on dev question 'a': .*: the base has"):
        diverging(tmp_path / "base").train(dev)


def test_a_state_is_saved_by_time_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred steps may take an hour; without a state the run begins anew, and its start is logged once."""
    config = replace(CONFIG, steps=4, evaluate_every=4, save_every=1000)

    def killed(folder: Path) -> None:
        values = iter([1.0])  # of the start; there is none at step 4
        with pytest.raises(StopIteration):
            run(folder, config).train(lambda ranker: next(values))

    killed(tmp_path / "steps")
    assert not (tmp_path / "steps" / "state.pt").exists()
    run(tmp_path / "steps", config).train(lambda ranker: 1.0)
    log = [json.loads(line) for line in (tmp_path / "steps" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if "dev_map" in line] == [0, 4]
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    killed(tmp_path / "time")
    assert torch.load(tmp_path / "time" / "state.pt", weights_only=True)["step"] == 3


def test_a_kill_while_a_state_is_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State and best weights are written whole or not at all: the run goes on from step 3."""
    save = torch.save

    def killed(value: Any, file: Any) -> None:
        if value.get("step") == 4:
            file.write(b"half")
            raise KeyboardInterrupt
        save(value, file)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path).train(lambda ranker: 1.0)
    assert torch.load(tmp_path / "state.pt", weights_only=True)["step"] == 3
    assert run(tmp_path).train(lambda ranker: 1.0) == 1.0


def test_weights_of_the_warm_start_are_not_kept(tmp_path: Path) -> None:
    """A dev MAP from the warm start does not count as the best, because exits are random then."""
    values = iter([98.0, 99.0, 70.0])
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
        examples_per_step=5,
    )
    run(tmp_path, config).train(lambda ranker: 0.0)
    losses = [
        record["loss"]
        for record in map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
        if "loss" in record
    ]
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])


def test_the_log_has_the_figures_of_heads_exits_and_steps(tmp_path: Path) -> None:
    """The losses of the stages that a step trains add up to its loss; rates and the norm of gradients are there."""
    config = replace(CONFIG, stages="joint", warmup=1, dropout=0.0)
    ranker = random_ranker()
    run(tmp_path, config, ranker).train(lambda ranker: {"final": 50.0, "exit 1": 40.0})
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    steps = [record for record in log if "loss" in record]
    parts = (("exit", len(ranker.exits)), ("head", len(ranker.heads)))
    stages = {f"loss/{part}_{number + 1}" for part, many in parts for number in range(many)}
    for record in steps:
        assert {name for name in record if name.startswith("loss/")} == stages
        assert sum(record[name] for name in stages) == pytest.approx(record["loss"], rel=1e-4)
        assert record["questions_per_second"] == pytest.approx(2 / record["seconds"], rel=1e-4)
        assert record["gradient_norm"] > 0
    rates = [record["learning_rate"] for record in steps]
    assert rates == pytest.approx([config.learning_rate * config.rate(step) for step in range(6)], rel=1e-5)
    assert [record["dev_map/exit_1"] for record in log if "dev_map" in record] == [40.0] * 3


def test_pairs_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    """One text of five is too long in a question's groups; a question that is too long cuts all of its pairs."""
    long = " ".join(["city"] * ENCODING.max_length)
    question = Question(
        id="a",
        text="what is a ?",
        candidates=(
            LabelledCandidate(Candidate(text="a is a city"), 1),
            *(LabelledCandidate(Candidate(text=text), 0) for text in ("b", "c", "d", long)),
        ),
    )
    sampling = ExampleOptions(negatives=4, hard_negatives=0, other_negatives=0)
    for asked, share in ((question, 5), (replace(question, text=f"what is {long} ?"), 1)):
        groups = Sampler([asked], sampling, seed=1)
        cut, pairs = first_pairs_cut(groups, encoder())
        assert pairs == 1000
        assert cut == pairs / share


def idle(folder: Path, network: RankingNetwork, steps: int) -> Loop[RankingNetwork, int, Nothing]:
    """A loop whose loss has no gradient, so that only weight decay changes weights."""
    config = replace(
        CONFIG, steps=steps, evaluate_every=1, learning_rate=0.5, fresh_learning_rate=0.1, weight_decay=0.5
    )
    return loop_of(
        folder,
        network,
        config,
        lambda step, forward, *_: (sum((0.0 * each.sum() for each in forward.parameters()), torch.zeros(())), {}),
        is_fresh=lambda name: name.startswith("exits."),
    )


def test_only_matrices_decay(tmp_path: Path) -> None:
    """Biases and norms do not, as in Hugging Face's Trainer."""
    network = random_ranker()
    before = {name: each.detach().clone() for name, each in network.named_parameters()}
    idle(tmp_path, network, 1).train(lambda ranker: 1.0)
    for name, each in network.named_parameters():
        rate = 0.1 if name.startswith("exits.") else 0.5
        kept = before[name] * (1.0 - (0.5 * rate if each.ndim > 1 else 0.0))
        torch.testing.assert_close(each.detach(), kept, msg=name)


def test_frozen_token_embeddings_stay(tmp_path: Path) -> None:
    """By default the token embeddings do not change."""
    ranker = random_ranker()
    before = ranker.embeddings.tokens.weight.clone()
    run(tmp_path, replace(CONFIG, train_token_embeddings=False), ranker).train(lambda ranker: 0.0)
    assert torch.equal(ranker.embeddings.tokens.weight, before)


def test_an_exit_alone_moves_the_token_embeddings(tmp_path: Path) -> None:
    """CT section 4.3.1: gradients of the exit that a step draws reach the embeddings; the heads stay as they were."""
    ranker = random_ranker()
    before = {name: weight.clone() for name, weight in ranker.state_dict().items()}
    config = replace(CONFIG, steps=1, evaluate_every=1, save_every=1, stages="uniform", dropout=0.0, weight_decay=0.0)
    drawing = next(seed for seed in range(9) if replace(config, seed=seed).trained(0, stages=3) == (0,))
    run(tmp_path, replace(config, seed=drawing), ranker).train(lambda ranker: 0.0)
    changed = {name for name, weight in ranker.state_dict().items() if not torch.equal(weight, before[name])}
    assert {"embeddings.tokens.weight"} < changed
    assert any(name.startswith("exits.0.") for name in changed)
    assert not any(name.startswith(("exits.1.", "heads.")) for name in changed)


@given(tokens=st.integers(1, 300), multiple=st.integers(1, 4), steps=st.integers(1, 8))
def test_steps_by_tokens_are_full_and_leave_nothing_out(tokens: int, multiple: int, steps: int) -> None:
    """The groups of all steps are the sequence's, each step a multiple; no further multiple would have fitted."""
    cut = TokenSteps(GROUPS, LETTERS, tokens, multiple=multiple)
    taken: list[list[Group]] = []
    for _ in range(steps):
        taken.append(cut(0, sum(map(len, taken))))
    together = [group for step in taken for group in step]
    sequence = [GROUPS.step(index, 1)[0] for index in range(len(together) + multiple)]
    assert together == sequence[: len(together)]
    sizes = [LETTERS.encode(group.question, group.candidates).tokens for group in sequence]
    start = 0
    for step in taken:
        stop = start + len(step)
        assert len(step) % multiple == 0
        assert sum(sizes[start:stop]) <= tokens or len(step) == multiple
        assert sum(sizes[start : stop + multiple]) > tokens
        start = stop


def test_a_gpu_alone_multiplies_with_its_tensor_cores() -> None:
    """Products of fp32 are in TF32 within the context, and as they were after it."""
    for device, precision in (("cuda", "high"), ("cpu", "highest")):
        with tensor_cores(torch.device(device)):
            assert torch.get_float32_matmul_precision() == precision
        assert torch.get_float32_matmul_precision() == "highest"

"""Training recipes, as functions that return all settings of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from cerberank_models.config import EncodingConfig, ExitConfig
from cerberank_training.data.sampling import NegativeSampling, PairSampling, Sampling
from cerberank_training.learning.student_objective import StudentObjective
from cerberank_training.learning.train_config import TrainConfig, bound_settings
from cerberank_training.students.shapes import StudentShape

PAIR = EncodingConfig(max_length=128, question_length=48)
OWN_CANDIDATES = NegativeSampling(own=9, hard=0, random=0)
"""For WikiQA and ASNQ, whose questions have their own candidates. The papers have single pairs, as `PairSampling` draws
them; four groups of ten are 40 pairs, and CERBERUS has 8 to 64 a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A student's shape, objective, sampling and schedule. Data and base are given with the command."""

    shape: StudentShape
    objective: StudentObjective = field(default_factory=StudentObjective)
    sampling: Sampling = field(default_factory=NegativeSampling)
    train: TrainConfig


def settings_of(recipe: Recipe, *, drawn: bool) -> dict[str, Any]:
    """The settings that determine a run's result. The sampling is included if groups are `drawn` in the run."""
    shape, mode = recipe.shape, "pairs" if isinstance(recipe.sampling, PairSampling) else "grouped"
    return {
        "shape": {
            **{name: getattr(shape, name) for name in ("body_layers", "heads", "layers", "token_types")},
            "exits": [exit_.model_dump() for exit_ in shape.exits],
        },
        "encoding": shape.encoding.model_dump(),
        "objective": asdict(recipe.objective),
        **({"sampling": {"mode": mode} | asdict(recipe.sampling)} if drawn else {}),
        "train": bound_settings(recipe.train),
    }


def mini_hard() -> Recipe:
    """`cerberank-mini` 1: B5 3H1 with exits after layers 2 and 4, from all-MiniLM-L6-v2, on squad-as2's labels.

    Command: `make train-mini DATA=... BASE=...`. The run has 35,200 questions (four tenths of an epoch). The first half
    of the steps trains the heads alone, and the second half trains exits and heads by CT's uniform sampling, which from
    the start would train the heads on only a third of the questions. Measured: WikiQA test (clean, zero-shot) 78.6 MAP,
    squad-as2 test by article 84.3 (400 questions).
    """
    return Recipe(
        shape=StudentShape(
            name="cerberank-mini",
            body_layers=5,
            heads=3,
            exits=(ExitConfig(after=2), ExitConfig(after=4)),
            encoding=PAIR,
        ),
        objective=StudentObjective(listwise=1.0),
        train=TrainConfig(steps=2200, final_only=0.5, dropout=0.0, learning_rate=6e-5, save_every=50),
    )


def mini() -> Recipe:
    """`cerberank-mini` 2: the same network; its heads are distilled from three teachers, its exits from its heads.

    docs/training.md has the commands. Every step trains all stages, because heads and exits then share one pass through
    the body. docs/decisions/0002 has the runs of `cerberank-mini` 2.0.0 with their results.
    """
    return Recipe(
        shape=mini_hard().shape,
        objective=StudentObjective(strategy="cerberus", alpha=(0.5,), tau=(1.0,), listwise=1.0, exits="heads"),
        train=TrainConfig(
            steps=300, stages="joint", dropout=0.0, learning_rate=4e-5, fresh_learning_rate=2e-4, evaluate_every=150
        ),
    )


def mini_adapted() -> Recipe:
    """TANDA's second step for `mini`: a checkpoint trained on a large set adapts to WikiQA's own candidates.

    Command: `distil --recipe mini-adapted --base CHECKPOINT --train wikiqa:WikiQA-train.tsv.gz --dev
    wikiqa:WikiQA-dev.tsv.gz`. Two epochs of 873 questions. Results: docs/decisions/0002. WikiQA's terms forbid
    distributing the trained checkpoint.
    """
    return Recipe(
        shape=mini_hard().shape,
        objective=StudentObjective(listwise=1.0, exits="heads"),
        sampling=OWN_CANDIDATES,
        train=TrainConfig(
            steps=110, stages="joint", dropout=0.0, learning_rate=2e-5, fresh_learning_rate=2e-5, evaluate_every=55
        ),
    )


def mini_teacher_listwise() -> Recipe:
    """A teacher for `mini`: MiniLM's six layers with one head, on question and candidate, point- and listwise loss.

    The three teachers differ in their input and loss. Each is trained from the checkpoint of `mini_hard`, as after
    TANDA's transfer step, because training three from the pretrained encoder takes too long on two processor cores.
    """
    return _mini_teacher("listwise", PAIR, StudentObjective(listwise=1.0), NegativeSampling())


def mini_teacher_context() -> Recipe:
    """A teacher that reads the previous and the next sentence as a third segment (SSP section 3)."""
    encoding = EncodingConfig(max_length=192, question_length=48, segments=3)
    return _mini_teacher("context", encoding, StudentObjective(listwise=1.0), NegativeSampling())


def mini_teacher_negatives() -> Recipe:
    """A teacher with twice as many negatives, most of them hard, and only the pointwise loss (as in the paper)."""
    sampling = NegativeSampling(own=3, hard=6, hard_pool=24, random=2)
    return _mini_teacher("negatives", PAIR, StudentObjective(), sampling, questions_per_step=8)


def mini_half() -> Recipe:
    """B2 3H1 of MiniLM's first three layers: a student half as deep as its teachers, for comparisons of strategies.

    Two calls, because the paper's students start from an encoder that was trained on AS2: `distil --recipe mini-half
    --strategy hard --heads 1 --steps 800 --learning-rate 1e-4 --fresh-learning-rate 2e-4` on the labels, then
    `train sweep cerberus --recipe mini-half` from its checkpoint (docs/decisions/0002 has the table). Seeds differ only
    in their dropout.
    """
    return Recipe(
        shape=StudentShape(name="mini-half", layers=3, body_layers=2, heads=3, encoding=PAIR),
        objective=StudentObjective(strategy="cerberus", alpha=(0.1,), tau=(1.0,)),
        train=TrainConfig(steps=100, learning_rate=5e-5, fresh_learning_rate=2e-4, evaluate_every=100),
    )


def tiny() -> Recipe:
    """B3 kHh of any encoder of four layers or more, 20 steps: to try the commands on your data before a long run."""
    return Recipe(
        shape=StudentShape(
            name="tiny",
            body_layers=3,
            heads=3,
            exits=(ExitConfig(after=1),),
            encoding=EncodingConfig(max_length=32, question_length=12),
        ),
        objective=StudentObjective(strategy="cerberus"),
        sampling=OWN_CANDIDATES,
        train=TrainConfig(
            steps=20, questions_per_step=2, evaluate_every=10, save_every=5, precision="fp32", dropout=0.0
        ),
    )


def student() -> Recipe:
    """One head on a base of any depth, trained on the questions' own candidates; not a paper's setting.

    If the base is a checkpoint, its body keeps its depth. With `--strategy single --teacher SCORES` the student also
    learns from a teacher's scores.
    """
    return Recipe(
        shape=StudentShape(name="student", heads=1, encoding=PAIR),
        sampling=OWN_CANDIDATES,
        train=TrainConfig(
            steps=2000, questions_per_step=8, learning_rate=2e-5, fresh_learning_rate=1e-4, evaluate_every=200
        ),
    )


def electra_base_b11_3h1() -> Recipe:
    """CERBERUS's B11 3H1 on groups of candidates; `cerberus/wikiqa` and `cerberus/asnq` have the paper's settings.

    It was not run on the paper's data. It differs from these presets in the following: a step has four groups of at
    most ten pairs, and not 64 single pairs; weight decay is .01, gradients are clipped at 1, and bf16 is used; the
    question is cut at 48 tokens and then the candidate at its end, and not the longest text first; weights are chosen
    on at most 300 questions of dev (of ASNQ all). Steps (20,000) and patience (50) are those of WikiQA; ASNQ has
    200,000 and 25. The paper prints (table 2, P@1, MAP, MRR): WikiQA 89.3, 92.4, 93.5; ASNQ 64.3, 75.1, 75.2.
    """
    return _electra_base(body_layers=11)


def electra_base_b10_3h2() -> Recipe:
    """B10 3H2; CERBERUS table 4 prints 139 M parameters and, on private data, P@1 64.9, MAP 61.2, MRR 70.8."""
    return _electra_base(body_layers=10)


def electra_base_b8_3h4() -> Recipe:
    """B8 3H4, 167.4 M parameters; CERBERUS table 4 prints 169 M and, on private data, P@1 64.7, MAP 60.7, MRR 70.4."""
    return _electra_base(body_layers=8)


def electra_base_b6_3h6() -> Recipe:
    """B6 3H6, 195.7 M parameters; CERBERUS table 4 prints 199 M and, on private data, P@1 64.3, MAP 60.6, MRR 70.3."""
    return _electra_base(body_layers=6)


def roberta_base_cascade() -> Recipe:
    """The Cascade Transformer of RoBERTa-base for one small GPU; `ct/asnq` and `ct/adapt` have the paper's settings.

    It was not run on the paper's data. It differs from the paper's settings in these: a step of all processes has at
    most 2,000 tokens (the paper's has as many on each of 8 GPUs), and pairs are in groups of at most ten. These are
    also our choice: 20,000 steps, dev MAP of the last exit every 250 steps with patience 50, gradients clipped at 1,
    bf16, one logit for each exit, and pairs of at most 128 tokens, where the question is cut at 48 tokens and then the
    candidate at its end. Exits have the same learning rate as all weights, which is low for new layers;
    `--fresh-learning-rate` sets a higher one. The paper prints for WikiQA without dropping, MAP by exit: 60.1, 79.8,
    84.8, 89.7, 89.9.
    """
    return Recipe(
        shape=StudentShape(
            name="roberta-base-cascade",
            body_layers=12,
            heads=0,
            exits=tuple(ExitConfig(after=after) for after in (4, 6, 8, 10, 12)),
            encoding=PAIR,
        ),
        sampling=OWN_CANDIDATES,
        train=TrainConfig(
            steps=20_000,
            tokens_per_step=2000,
            learning_rate=1e-6,
            fresh_learning_rate=1e-6,
            warmup=4000,
            weight_decay=0.0,
            evaluate_every=250,
            patience=50,
            train_token_embeddings=True,
        ),
    )


def _mini_teacher(
    kind: str,
    encoding: EncodingConfig,
    objective: StudentObjective,
    sampling: NegativeSampling,
    questions_per_step: int = 16,
) -> Recipe:
    return Recipe(
        shape=StudentShape(name=f"mini-teacher-{kind}", body_layers=5, heads=1, encoding=encoding),
        objective=objective,
        sampling=sampling,
        train=TrainConfig(
            steps=400,
            questions_per_step=questions_per_step,
            dropout=0.0,
            learning_rate=4e-5,
            fresh_learning_rate=1e-4,
            evaluate_every=100,
            save_every=50,
        ),
    )


def _electra_base(body_layers: int) -> Recipe:
    return Recipe(
        shape=StudentShape(
            name=f"cerberus-electra-base-b{body_layers}-3h{12 - body_layers}",
            body_layers=body_layers,
            heads=3,
            encoding=PAIR,
        ),
        objective=StudentObjective(strategy="cerberus", alpha=(0.1,), tau=(3.0,)),
        sampling=OWN_CANDIDATES,
        train=TrainConfig(
            steps=20_000,
            questions_per_step=4,
            learning_rate=1e-5,
            fresh_learning_rate=1e-5,
            warmup=0.05,
            evaluate_every=250,
            patience=50,
            train_token_embeddings=True,
        ),
    )


RECIPES = {
    "student": student,
    "mini-hard": mini_hard,
    "mini": mini,
    "mini-adapted": mini_adapted,
    "mini-half": mini_half,
    "mini-teacher-listwise": mini_teacher_listwise,
    "mini-teacher-context": mini_teacher_context,
    "mini-teacher-negatives": mini_teacher_negatives,
    "tiny": tiny,
    "electra-base-b11-3h1": electra_base_b11_3h1,
    "electra-base-b10-3h2": electra_base_b10_3h2,
    "electra-base-b8-3h4": electra_base_b8_3h4,
    "electra-base-b6-3h6": electra_base_b6_3h6,
    "roberta-base-cascade": roberta_base_cascade,
}

"""The commands of training as functions; a value of None is not given, and has the default of the command.

`python -m tools.reference` writes this module. `cerberank COMMAND --help` and docs/commands describe the arguments by
the names of options: `--learning-rate` is `learning_rate` here. Messages name the arguments as Python does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cerberank.call import Several, call

if TYPE_CHECKING:
    from cerberank_models.commands.weights import Agreement
    from cerberank_training.acceleration.settings import Accelerated
    from cerberank_training.commands.evaluation.calibrate import Calibrated
    from cerberank_training.commands.evaluation.ensemble import SystemFigures
    from cerberank_training.commands.export import Exported
    from cerberank_training.commands.mine import Mined
    from cerberank_training.commands.presets import Preset
    from cerberank_training.commands.runs import RunRow
    from cerberank_training.commands.sample import Sampled
    from cerberank_training.commands.score import TeacherScores
    from cerberank_training.commands.tune import Tuned
    from cerberank_training.data.in_memory import Data
    from cerberank_training.evaluation.evaluate_ranker import Report
    from cerberank_training.evaluation.paired_tests import RankingComparison
    from cerberank_training.evaluation.systems.comparison import SystemTable
    from cerberank_training.runs.job import Trained


def accelerate(
    checkpoint: str | Path,
    /,
    *,
    data: Data,
    out: str | Path,
    version: str | None = None,
    exits: Several[int] | None = None,
    pooling: Literal["mean", "first", "last"] | None = None,
    token_features: int | None = None,
    epochs: float | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    held_out: int | None = None,
    max_loss: float | None = None,
    max_cost: float | None = None,
    minimum: int | None = None,
    device: str | None = None,
    workers: int | None = None,
    track: Several[Literal["tensorboard", "wandb", "mlflow"]] | None = None,
    precision: Literal["fp32", "bf16", "fp16"] | None = None,
    forms: Several[str] | None = None,
    gate_questions: int | None = None,
    min_agreement: float | None = None,
) -> Accelerated:
    """Give a checkpoint exits and a drop schedule from its own scores; labels are not needed."""
    return call("train accelerate", locals())


def average(
    first_folder: str | Path,
    /,
    *more: str | Path,
    out: str | Path,
    version: str | None = None,
) -> Path:
    """Average the weights of checkpoints that were trained further from the same weights."""
    return call("checkpoint average", locals())


def calibrate(
    checkpoint: str | Path,
    /,
    *,
    data: Several[Data],
    out: str | Path,
    version: str | None = None,
    sample: int | None = None,
    unanswered_share: float | None = None,
    seed: int | None = None,
    windows: Literal["best", "mean", "off"] | None = None,
    device: str | None = None,
    backend: str | None = None,
    precision: str | None = None,
) -> Calibrated:
    """Fit probabilities to a checkpoint's scores, and write them into a new checkpoint."""
    return call("checkpoint calibrate", locals())


def compare(
    a: str | Path,
    b: str | Path,
    /,
    *,
    ranking: str | None = None,
    ranking_b: str | None = None,
    subset: Literal["raw", "clean", "strict"] | None = None,
    measures: Several[str] | None = None,
    level: float | None = None,
    json: str | Path | None = None,
) -> RankingComparison:
    """Compare two evaluations question by question: differences, and p-values of paired tests."""
    return call("results compare", locals())


def count(
    *,
    data: Several[str],
) -> None:
    """Count the questions, pairs and positives of data sets."""
    return call("data count", locals())


def distil(
    *,
    recipe: str,
    base: str,
    dev: Data,
    out: str | Path,
    train: Data | None = None,
    groups: Data | None = None,
    teacher: Several[str | Path] | None = None,
    device: str | None = None,
    workers: int | None = None,
    track: Several[Literal["tensorboard", "wandb", "mlflow"]] | None = None,
    dev_questions: int | Literal["all"] | None = None,
    select: str | None = None,
    forms: Several[str] | None = None,
    name: str | None = None,
    version: str | None = None,
    terms: str | None = None,
    layers: int | None = None,
    body_layers: int | None = None,
    heads: int | None = None,
    exits: Several[int] | None = None,
    exit_pooling: Literal["mean", "first"] | None = None,
    exit_token_features: int | None = None,
    token_types: Literal["shared"] | Literal["fresh", "copied", "anew"] | None = None,
    max_length: int | None = None,
    truncation: Literal["last_first", "longest_first"] | None = None,
    question_length: int | None = None,
    windows: Literal["best", "mean", "off"] | None = None,
    context: bool | None = None,
    strategy: Literal["kd_sum", "kd_rr", "kd_mean"] | None = None,
    alpha: Several[float] | None = None,
    tau: Several[float] | None = None,
    teacher_loss: Literal["kl", "mse", "margin-mse", "listwise"] | None = None,
    lambda_: Several[float] | None = None,
    exits_learn: Literal["labels", "heads"] | None = None,
    listwise_weight: float | None = None,
    sampling: Literal["grouped", "pairs"] | None = None,
    unanswered: Literal["keep", "drop"] | None = None,
    negatives: int | None = None,
    hard_negatives: int | None = None,
    hard_pool: int | None = None,
    other_negatives: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    examples_per_step: int | None = None,
    accumulate: int | None = None,
    evaluate_every: float | None = None,
    save_every: int | None = None,
    patience: int | None = None,
    learning_rate: float | None = None,
    warmup: float | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    precision: Literal["fp32", "bf16", "fp16"] | None = None,
    gradient_checkpointing: bool | None = None,
    seed: int | None = None,
    tokens_per_step: int | None = None,
    fresh_learning_rate: float | None = None,
    dropout: float | None = None,
    stages: Literal["uniform", "in_turn", "joint"] | None = None,
    final_only: float | None = None,
    train_token_embeddings: bool | None = None,
) -> Trained:
    """Train a student by a recipe, on labels or teachers' scores."""
    return call("train distil", locals())


def ensemble(
    *,
    dev: Several[str | Path],
    test: Several[str | Path],
    ranking: str | None = None,
    measure: Literal["map", "mrr", "p@1"] | None = None,
    trials: int | None = None,
    seed: int | None = None,
    json: str | Path | None = None,
    per_question: str | Path | None = None,
) -> dict[str, SystemFigures]:
    """Combine the scores of models linearly, with weights that are tuned on dev, and report on test."""
    return call("results ensemble", locals())


def evaluate(
    *,
    data: Data | None = None,
    checkpoint: str | Path | None = None,
    sequence: Several[str | Path] | None = None,
    text_ranker: str | Path | None = None,
    url: str | None = None,
    scores: str | Path | None = None,
    run: str | Path | None = None,
    qrels: str | Path | None = None,
    windows: Literal["best", "mean", "off"] | None = None,
    subset: Literal["raw", "clean", "strict"] | None = None,
    schedule: Several[str] | None = None,
    minimum: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
    depths: Several[int] | None = None,
    depth_pairs: int | None = None,
    agreement: Several[str | Path] | None = None,
    measures: Several[str] | None = None,
    trec_run: str | Path | None = None,
    trec_qrels: str | Path | None = None,
    ranking: str | None = None,
    tag: str | None = None,
    json: str | Path | None = None,
    per_question: str | Path | None = None,
    device: str | None = None,
    backend: str | None = None,
    precision: str | None = None,
) -> Report:
    """Measure a checkpoint by exit, head and drop schedule, or a service, scores, or a TREC run."""
    return call("evaluate", locals())


def export(
    checkpoint: str | Path,
    out: str | Path,
    /,
    *,
    forms: Several[str] | None = None,
    no_weights: bool | None = None,
    version: str | None = None,
    int8_texts: Data | None = None,
    gate: Data | None = None,
    gate_questions: int | None = None,
    min_agreement: float | None = None,
    cerberus: bool | None = None,
    hugging_face: bool | None = None,
    head: int | None = None,
) -> Exported:
    """Write a checkpoint with ONNX graphs in the chosen precisions, if their scores are close enough to
    the weights'.
    """
    return call("export", locals())


def first_stage(
    checkpoint: str | Path,
    encoder: str,
    out: str | Path,
    /,
    *,
    drop_ratio: float | None = None,
    forms: Several[str] | None = None,
    int8_texts: Data | None = None,
    candidate_length: int | None = None,
    version: str | None = None,
) -> Path:
    """Attach a bi-encoder that ranks all candidates before any is read as a pair."""
    return call("checkpoint first-stage", locals())


def import_(
    source: str,
    out: str | Path,
    /,
    *,
    revision: str | None = None,
    name: str | None = None,
    max_length: int | None = None,
    windows: Literal["best", "mean", "off"] | None = None,
    context: bool | None = None,
    forms: Several[str] | None = None,
    opaque: bool | None = None,
    tokenizer: str | None = None,
    prompt: str | None = None,
    int8_texts: Data | None = None,
) -> Path:
    """Make a checkpoint from a Hugging Face cross-encoder, a decoder that reranks, a ColBERT, or the
    authors' CERBERUS.
    """
    return call("import", locals())


def mine(
    *,
    data: Data,
    out: str | Path,
    corpus: Data | None = None,
    by: str | None = None,
    filter: str | None = None,
    negatives: int | None = None,
    skip: int | None = None,
    top: int | None = None,
    relative_margin: float | None = None,
    choose: Literal["top", "random"] | None = None,
    seed: int | None = None,
    vectors: str | Path | None = None,
    candidate_length: int | None = None,
    device: str | None = None,
    precision: str | None = None,
) -> Mined:
    """Find hard negatives for questions with positives in a corpus, and write them in the generic form (jsonl)."""
    return call("data mine", locals())


def pairwise(
    *,
    system: str,
    base: str,
    train: Data,
    dev: Data,
    out: str | Path,
    recipe: str | None = None,
    layers: int | None = None,
    positives: Literal["listed", "any"] | None = None,
    top: int | None = None,
    own_share: float | None = None,
    dev_questions: int | Literal["all"] | None = None,
    select: str | None = None,
    mono: str | Path | None = None,
    bi: str | Path | None = None,
    device: str | None = None,
    workers: int | None = None,
    track: Several[Literal["tensorboard", "wandb", "mlflow"]] | None = None,
    hard: Literal["hinge", "softmax"] | None = None,
    margin: float | None = None,
    representations: Literal["encoder", "projected", "post_residual"] | None = None,
    hard_weight: float | None = None,
    cls_weight: float | None = None,
    representation_weight: float | None = None,
    released: bool | None = None,
    mean: Literal["all", "text"] | None = None,
    colbert_texts: bool | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    examples_per_step: int | None = None,
    accumulate: int | None = None,
    evaluate_every: float | None = None,
    save_every: int | None = None,
    patience: int | None = None,
    learning_rate: float | None = None,
    warmup: float | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    precision: Literal["fp32", "bf16", "fp16"] | None = None,
    gradient_checkpointing: bool | None = None,
    seed: int | None = None,
    fresh_learning_rate: float | None = None,
    dropout: float | None = None,
    question_length: int | None = None,
    document_length: int | None = None,
    window: int | None = None,
) -> Trained:
    """Train a text ranker on triples: one of TRMD's teachers or students."""
    return call("train pairwise", locals())


def pretrain(
    *,
    objective: Literal["sdc", "dpc", "dslc", "all"],
    base: str,
    documents: Data,
    dev: Data,
    out: str | Path,
    recipe: str | None = None,
    whole_negatives: bool | None = None,
    generator: str | None = None,
    layers: int | None = None,
    token_types: Literal["fresh", "copied", "anew"] | None = None,
    dev_groups: int | None = None,
    select: Literal["last", "ssp_accuracy", "ssp_first", "ssp_hard"] | None = None,
    device: str | None = None,
    workers: int | None = None,
    track: Several[Literal["tensorboard", "wandb", "mlflow"]] | None = None,
    ssp_weight: float | None = None,
    mlm_weight: float | None = None,
    rtd_weight: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    examples_per_step: int | None = None,
    accumulate: int | None = None,
    evaluate_every: float | None = None,
    save_every: int | None = None,
    patience: int | None = None,
    learning_rate: float | None = None,
    warmup: float | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    precision: Literal["fp32", "bf16", "fp16"] | None = None,
    gradient_checkpointing: bool | None = None,
    seed: int | None = None,
    max_length: int | None = None,
) -> Trained:
    """Continue an encoder's pre-training with context (SSP), on documents of paragraphs."""
    return call("train pretrain", locals())


def recipes(
    name: str | None = None,
    /,
) -> list[Preset]:
    """List the recipes and the papers' presets, or show every setting of one with its source."""
    return call("train recipes", locals())


def runs(
    folder: str | Path,
    /,
    *,
    json: bool | None = None,
) -> list[RunRow]:
    """Show the training runs below a folder, finished or not."""
    return call("train runs", locals())


def sample(
    *,
    recipe: str,
    train: Several[Data],
    questions: int,
    out: str | Path,
    temperature: float | None = None,
    elsewhere: int | None = None,
    questions_as_candidates: float | None = None,
    changed: float | None = None,
    removed: float | None = None,
    chat: float | None = None,
    without_positive: float | None = None,
    seed: int | None = None,
) -> Sampled:
    """Write the groups that a recipe would train on, so that teachers can score them beforehand."""
    return call("data sample", locals())


def score(
    out: str | Path,
    /,
    *,
    data: Several[Data],
    teacher: str | None = None,
    backend: Literal["onnx", "torch"] | None = None,
    precision: str | None = None,
    device: str | None = None,
    max_length: int | None = None,
    context: bool | None = None,
    engine: Literal["local", "ray"] | None = None,
    copies: int | None = None,
    shard: str | None = None,
    scores: str | Path | None = None,
    own_scores: bool | None = None,
    as_: Literal["logit", "probability", "score"] | None = None,
    name: str | None = None,
    parts: Several[str | Path] | None = None,
    shard_pairs: int | None = None,
) -> TeacherScores:
    """Score a data set with a teacher, into a cache that students learn from."""
    return call("data score", locals())


def sweep_cerberus(
    *,
    recipe: str,
    base: str,
    dev: Data,
    teacher: Several[str | Path],
    test: Several[Data],
    out: str | Path,
    train: Data | None = None,
    groups: Data | None = None,
    dev_questions: int | Literal["all"] | None = None,
    windows: Literal["best", "mean", "off"] | None = None,
    hydra: Several[str | Path] | None = None,
    body_layers: Several[int] | None = None,
    rows: Several[str] | None = None,
    precision: str | None = None,
    device: str | None = None,
    steps: int | None = None,
    alpha: Several[float] | None = None,
    tau: Several[float] | None = None,
    learning_rate: Several[float] | None = None,
    examples_per_step: Several[int] | None = None,
    warmup: Several[float] | None = None,
    sample: int | None = None,
    seeds: Several[int] | None = None,
) -> Path:
    """Train the same student by every strategy, or in several shapes, and compare (CERBERUS tables 3 and 4)."""
    return call("train sweep cerberus", locals())


def sweep_cerberus_models(
    *,
    train: Data,
    dev: Data,
    test: Several[Data],
    out: str | Path,
    transfer: Data | None = None,
    transfer_dev: Data | None = None,
    large: Several[str] | None = None,
    base: Several[str] | None = None,
    rows: Several[str] | None = None,
    teach_options: str | None = None,
    distil_options: str | None = None,
    device: str | None = None,
    sample: int | None = None,
    seeds: Several[int] | None = None,
) -> Path:
    """Train large models, base models, students, ensembles, Hydra and CERBERUS, and compare (CERBERUS table 2)."""
    return call("train sweep cerberus-models", locals())


def sweep_grid(
    *training: str,
    out: str | Path,
    verb: Literal["distil", "teach"] | None = None,
    alpha: Several[float] | None = None,
    tau: Several[float] | None = None,
    learning_rate: Several[float] | None = None,
    examples_per_step: Several[int] | None = None,
    warmup: Several[float] | None = None,
) -> Path:
    """Train with every combination of alpha, tau, learning rate, batch and warm-up, and choose by dev MAP."""
    return call("train sweep grid", locals())


def sweep_ssp(
    *,
    target: Literal[
        "wikiqa-roberta", "wikiqa-electra", "asnq-roberta", "asnq-electra", "newsas2-roberta", "newsas2-electra"
    ],
    base: str,
    documents: str,
    dev_documents: str,
    train: Data,
    dev: Data,
    test: Several[Data],
    out: str | Path,
    generator: str | None = None,
    rows: Several[str] | None = None,
    pretrain_options: str | None = None,
    teach_options: str | None = None,
    device: str | None = None,
    sample: int | None = None,
    seeds: Several[int] | None = None,
) -> Path:
    """Pre-train an encoder by SSP's objectives, fine-tune it with context, and compare (SSP table 1)."""
    return call("train sweep ssp", locals())


def sweep_trmd(
    *training: str,
    test: Several[Data],
    out: str | Path,
    rows: Several[str] | None = None,
    mono_options: str | None = None,
    folds: Several[int] | None = None,
    sample: int | None = None,
    seeds: Several[int] | None = None,
) -> Path:
    """Train TRMD's systems on the same triples and compare them (TRMD table 2)."""
    return call("train sweep trmd", locals())


def table(
    *systems: str | Path,
    baseline: str | None = None,
    measures: Several[str] | None = None,
    ranking: str | None = None,
    subset: Literal["raw", "clean", "strict"] | None = None,
    json: str | Path | None = None,
    latex: str | Path | None = None,
) -> list[SystemTable]:
    """Put several systems on several data sets into one table, tested against a baseline."""
    return call("results table", locals())


def teach(
    *,
    base: str,
    train: Data,
    dev: Data,
    out: str | Path,
    recipe: str | None = None,
    dev_questions: int | Literal["all"] | None = None,
    select: str | None = None,
    device: str | None = None,
    workers: int | None = None,
    track: Several[Literal["tensorboard", "wandb", "mlflow"]] | None = None,
    sampling: Literal["grouped", "pairs"] | None = None,
    unanswered: Literal["keep", "drop"] | None = None,
    negatives: int | None = None,
    hard_negatives: int | None = None,
    hard_pool: int | None = None,
    other_negatives: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    examples_per_step: int | None = None,
    accumulate: int | None = None,
    evaluate_every: float | None = None,
    save_every: int | None = None,
    patience: int | None = None,
    learning_rate: float | None = None,
    warmup: float | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    precision: Literal["fp32", "bf16", "fp16"] | None = None,
    gradient_checkpointing: bool | None = None,
    seed: int | None = None,
    context: bool | None = None,
    token_types: Literal["shared"] | Literal["fresh", "copied", "anew"] | None = None,
    max_length: int | None = None,
    layers: int | None = None,
    loss: Literal["pointwise", "listwise", "both"] | None = None,
    dropout: float | None = None,
) -> Trained:
    """Fine-tune a Hugging Face sequence classifier into a teacher."""
    return call("train teach", locals())


def tune(
    checkpoint: str | Path,
    /,
    *,
    data: Several[Data],
    out: str | Path,
    version: str | None = None,
    max_loss: float | None = None,
    max_set_loss: float | None = None,
    confidence: float | None = None,
    max_cost: float | None = None,
    schedule: Several[str] | None = None,
    exits_only: bool | None = None,
    minimum: int | None = None,
    sample: int | None = None,
    depths: Several[int] | None = None,
    depth_pairs: int | None = None,
    seed: int | None = None,
    windows: Literal["best", "mean", "off"] | None = None,
    device: str | None = None,
    backend: str | None = None,
    precision: str | None = None,
) -> Tuned:
    """Choose a ranker's drop schedules on dev data, and write them into a new checkpoint."""
    return call("train tune", locals())


def weights(
    checkpoint: str | Path,
    out: str | Path,
    /,
    *,
    precision: Literal["fp32", "int8"] | None = None,
) -> Agreement:
    """Read weights back from the ONNX graphs of a checkpoint that has no model.safetensors."""
    return call("checkpoint weights", locals())

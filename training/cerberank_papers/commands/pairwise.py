"""`cerberank train pairwise`: a text ranker from triples, one of TRMD's teachers or students."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Group, Parameter
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict
from tokenizers import Tokenizer

from cerberank_models.commands.values import RECIPE_KEY, Count, DataSpec, Share
from cerberank_models.first_stage.text_ranker_folder import read_text_ranker, write_text_ranker
from cerberank_models.output import UsageError, say
from cerberank_models.text_config import TextEncodingConfig
from cerberank_models.text_encoding import TextEncoder
from cerberank_papers.pairwise.learner import PairwiseConfig, pairwise_learner
from cerberank_papers.pairwise.objective import PairwiseObjective
from cerberank_papers.pairwise.teachers import FrozenTeacher, Teachers
from cerberank_papers.pairwise.text_rankers import SYSTEMS, System, build_text_ranker, released_settings
from cerberank_papers.pairwise.triple_batch import count_cut
from cerberank_papers.pairwise.triple_sampling import TripleSampler, TripleSampling, triple_sampler_for
from cerberank_training.commands.presets import options_from_recipe
from cerberank_training.data.sampling import cut_note
from cerberank_training.evaluation.dev_figures import RankingTraining, dev_figures
from cerberank_training.evaluation.dev_options import RECIPE_HELP, DevQuestions, Select
from cerberank_training.evaluation.question_metrics import TITLES
from cerberank_training.evaluation.sources.text_ranker import text_ranks
from cerberank_training.learning.student_settings import Layers
from cerberank_training.runs.base import open_hugging_face_base
from cerberank_training.runs.job import Inputs, Job, Trained, train
from cerberank_training.runs.record import RunRecord, results_suffix
from cerberank_training.runs.run_data import (
    RankingData,
    check_ranking_data,
    folder_content,
    open_ranking_data,
)
from cerberank_training.runs.settings import RunOptions, bound_settings


def _check_system(type_: Any, name: str) -> None:
    if name not in SYSTEMS:
        raise ValueError(f"Choose from {', '.join(SYSTEMS)}.")


@Parameter(name="*", group=Group("Losses: the paper's, unless --released is given", sort_key=1), show_default=False)
@dataclass(frozen=True, kw_only=True)
class LossOptions(PairwiseObjective):
    """Settings of the losses, and of what they read."""

    released: bool = False
    """Take the losses, the learning rate and TwinBERT's mean from TRMD's released code."""
    mean: Annotated[Literal["all", "text"], RECIPE_KEY] = "all"
    """Tokens of TwinBERT's mean: all, or all except special ones (text)."""
    colbert_texts: bool = False
    """Prepare texts as ColBERT does: marked as question or document, questions filled with [MASK], no punctuation."""

    @property
    def objective(self) -> PairwiseObjective:
        """The losses and their weights."""
        return PairwiseObjective(**{each.name: getattr(self, each.name) for each in fields(PairwiseObjective)})


@Parameter(name="*", group=Group("Lengths, in tokens without special ones", sort_key=3), show_default=False)
@dataclass(frozen=True, kw_only=True)
class TextLengthOptions:
    """Settings of the texts that are read."""

    question_length: Count = 64
    """Most tokens of a question."""
    document_length: Count = 800
    """Most tokens of a document."""
    window: Count = 384
    """Most tokens of a window of a long document."""

    @property
    def encoding(self) -> TextEncodingConfig:
        """The rules by which texts become token ids."""
        return TextEncodingConfig(**asdict(self))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PairwiseOptions:
    """The options of `train pairwise`."""

    recipe: Annotated[str | None, Parameter(help=RECIPE_HELP)] = None
    system: Annotated[str, Parameter(help=f"System of the paper: {', '.join(SYSTEMS)}.", validator=_check_system)]
    base: str
    """Path or hub id of an encoder."""
    layers: Layers | None = None
    train: DataSpec
    """Questions to draw triples from, as FORMAT:PATH."""
    positives: Literal["listed", "any"] = "listed"
    """Relevant texts to draw positives from: those among BM25's best (listed), or all (any)."""
    top: Count = 100
    """Number of BM25's best texts to draw from."""
    own_share: Share = 0.0
    """Share of triples from the question's own candidates instead of BM25's list; with 1, BM25 is not used."""
    dev: DataSpec
    """Questions to choose weights by, as FORMAT:PATH."""
    dev_questions: DevQuestions = None
    select: Select = "map"
    mono: Path | None = None
    """Folder of the monoBERT teacher, for trmd-*."""
    bi: Path | None = None
    """Folder of the TwinBERT or ColBERT teacher, for trmd-*."""
    out: Path
    """Folder of the run; the result is OUT/ranker."""
    run: RunOptions = field(default_factory=RunOptions)
    loss: LossOptions = field(default_factory=LossOptions)
    schedule: PairwiseConfig = field(default_factory=PairwiseConfig)
    lengths: TextLengthOptions = field(default_factory=TextLengthOptions)

    @property
    def training(self) -> PairwiseConfig:
        """The settings of the loop; tables of `train sweep trmd` bind them as `schedule`."""
        return self.schedule


def settings_from_recipe(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """A configuration of cyclopts: options that a call leaves out have the values of its recipe, else of --released."""
    options_from_recipe("pairwise")(app, commands, arguments)
    if arguments["--released"].convert() is True:
        system = SYSTEMS.get(arguments["--system"].convert(), System())
        Dict(released_settings(system), source="--released", use_commands_as_keys=False)(app, commands, arguments)


app = App(config=settings_from_recipe)


@app.default
def pairwise(*, options: PairwiseOptions) -> Trained:
    """Train a text ranker on triples: one of TRMD's teachers or students.

    monoBERT (mono), TwinBERT (twin) and ColBERT (colbert) are trained on labels, as are the students without
    distillation (tr-*). trmd-* also learn from --mono and --bi, folders that this command wrote as OUT/ranker, of the
    same encoder. A killed run continues when the command is repeated. Several GPUs or processes:
    `torchrun --nproc-per-node 4 --no-python cerberank train pairwise ...`.

    Args:
        options: Options.
    """
    return train(TextRankerJob(options))


@dataclass(frozen=True, kw_only=True)
class TextRankerInputs(Inputs):
    """The base and the data of a text ranker."""

    config: PairwiseConfig
    data: RankingData
    triples: TripleSampler


class TextRankerJob(Job[PairwiseOptions, TextRankerInputs]):
    """The training of a text ranker."""

    verb = "pairwise"
    result_name = "ranker"

    @property
    def system(self) -> System:
        """The rankers of the network, and whether it has teachers."""
        return SYSTEMS[self.options.system]

    @property
    def teachers(self) -> dict[str, Path]:
        """The folders of the teachers by role."""
        folders = {"mono": self.options.mono, "bi": self.options.bi}
        return {role: path for role, path in folders.items() if path is not None}

    def check_own(self) -> None:
        """Raise what is wrong with any option that can be told without reading data or a base."""
        options = self.options
        if self.system.taught != bool(self.teachers):
            need = "needs --mono or --bi, or both" if self.system.taught else "learns from no teacher"
            raise UsageError(f"{options.system} {need}.")
        check_ranking_data(options.train, options.dev, options.dev_questions)

    def open(self) -> TextRankerInputs:
        """Open the base, and the questions to train on and to choose by."""
        options = self.options
        base = open_hugging_face_base(options.base, reason="a text ranker starts from a Hugging Face encoder")
        base_content = base.content()
        data = open_ranking_data(options.train, options.dev, options.dev_questions, select=options.select)
        sampling = TripleSampling(positives=options.positives, top=options.top, own_share=options.own_share)
        triples = triple_sampler_for(options.train, list(data.questions), sampling, seed=options.schedule.seed)
        config = options.schedule.resolved(len(triples))
        return TextRankerInputs(
            base=base,
            data=data,
            triples=triples,
            config=config,
            bound={
                "base": base_content,
                **data.bound,
                "teachers": {role: folder_content(path) for role, path in self.teachers.items()},
                "settings": {name: getattr(options, name) for name in ("system", "layers")}
                | {"sampling": asdict(sampling), "encoding": options.lengths.encoding.model_dump()}
                | {"objective": asdict(options.loss.objective), "mean": options.loss.mean}
                | {"colbert_texts": options.loss.colbert_texts, "train": bound_settings(config)},
            },
            names={"train": options.train, "dev": options.dev}
            | {role: str(path) for role, path in self.teachers.items()},
            recipe=options.recipe,
        )

    def prepare(self, inputs: TextRankerInputs, record: RunRecord) -> TextRankerTraining:
        """Build the network from the base, and load its teachers."""
        options, loss, config = self.options, self.options.loss, inputs.config
        ranker, tokenizer = build_text_ranker(
            self.system,
            inputs.base,
            name=options.system,
            encoding=options.lengths.encoding,
            seed=config.seed,
            dropout=config.dropout,
            layers=options.layers,
            mean=loss.mean,
            colbert_texts=loss.colbert_texts,
        )
        encoder, triples = TextEncoder(tokenizer, ranker.config), inputs.triples
        # Lines on dev questions that are trained on, and on texts that are cut in the first step.
        cuts = cut_note(
            *count_cut(triples.step(0, config.examples_per_step), encoder),
            what="texts",
            option="--question-length or --document-length",
        )
        return TextRankerTraining(
            learner=pairwise_learner(
                ranker,
                tokenizer,
                triples,
                config,
                objective=loss.objective,
                teachers=Teachers(mono=_teacher(options.mono, config), bi=_teacher(options.bi, config)),
            ),
            measure=dev_figures(text_ranks(encoder), inputs.data.dev, options.select),
            start_lines=(inputs.data.shared, cuts),
            dev=inputs.data.dev,
            job=self,
            tokenizer=tokenizer,
        )


@dataclass(frozen=True, kw_only=True)
class TextRankerTraining(RankingTraining):
    """A text ranker, and what it learns from."""

    job: TextRankerJob
    tokenizer: Tokenizer

    def write(self, record: RunRecord) -> None:
        """Write the folder of the text ranker, and say what it is."""
        options, results = self.job.options, record.results
        write_text_ranker(
            self.job.result,
            self.learner.network,
            self.tokenizer,
            version=f"steps-{self.learner.config.steps}-seed-{self.learner.config.seed}",
            source=f"TRMD {options.system}, run {record.digest}",
            metrics={self.job.dev_name: results["best"]},
        )
        say(f"{self.job.result}: best dev {TITLES[options.select]} {results['best']:.2f}{results_suffix(results)}")


def _teacher(path: Path | None, config: PairwiseConfig) -> FrozenTeacher | None:
    if path is None:
        return None
    saved = read_text_ranker(path)
    return FrozenTeacher(str(path), saved.ranker, saved.tokenizer, precision=config.precision)

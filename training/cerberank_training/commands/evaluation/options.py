"""The options of `cerberank evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from cerberank_models.commands.options import OWN, BackendOptions, Windows
from cerberank_models.commands.values import Count, Integers, Whole
from cerberank_models.drop import RatioSchedule
from cerberank_models.output import UsageError
from cerberank_training.commands.run_options import data_help
from cerberank_training.data import Subset
from cerberank_training.data.depths import DEPTH_PAIRS
from cerberank_training.evaluation.measures import Measure, parse_measures


def _parsed(type_: Any, tokens: Sequence[Token]) -> tuple[Measure, ...]:
    return parse_measures(" ".join(token.value for token in tokens))


def _schedules(type_: Any, tokens: Sequence[Token]) -> tuple[tuple[float, ...], ...]:
    """One schedule for each time that the option is given."""
    try:
        return tuple(RatioSchedule(tuple(map(float, token.value.split(",")))).ratios for token in tokens)
    except ValueError:
        raise ValueError("takes numbers of at least 0 and below 1, such as 0.3,0.3") from None


Measures = Annotated[tuple[Measure, ...], Parameter(converter=_parsed, n_tokens=1)]
"""Names of ir_measures with blanks between them, such as `AP nDCG@10`."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """The options of `evaluate`."""

    data: Annotated[str | None, Parameter(help=data_help("Data set, unless there are --qrels"))] = None
    checkpoint: Path | None = None
    """Checkpoint folder (default: the bundled one)."""
    sequence: tuple[Path, ...] = ()
    """Folder of an independent model that reranks what the one before kept; once for each model."""
    text_ranker: Path | None = None
    """Folder of `train pairwise`; in torch, fp32."""
    url: str | None = None
    """Address of a service to evaluate instead."""
    scores: Path | None = None
    """Scores to evaluate instead: a cache of `data score`, or a file with {"id", "scores": [...]} for each question."""
    run: Path | None = None
    """TREC run to evaluate instead, of the candidates of --data, or of any documents with --qrels."""
    qrels: Path | None = None
    """Judgements of --run, instead of --data."""
    windows: Windows = None
    against: str | None = None
    """Precision to compare with, such as fp32: share of equal first candidates, difference in MAP."""
    subset: Subset = "clean"
    """Questions in the table."""
    schedule: Annotated[tuple[tuple[float, ...], ...], Parameter(converter=_schedules, n_tokens=1)] = ()
    """Drop ratios of one more schedule to measure, such as 0.3,0.3; repeat for several."""
    minimum: Count = 1
    """Least number of candidates that these schedules leave."""
    sample: Count | None = None
    """Number of questions of the subset to draw (default: all)."""
    seed: Whole = 0
    """Random seed."""
    depths: Integers = ()
    """Numbers of candidates, separated by commas, for a table of MAP and P@1 against them (docs/evaluation.md)."""
    depth_pairs: Count = DEPTH_PAIRS
    """Most pairs of a depth; where these are fewer, it has fewer questions."""
    agreement: tuple[Path, ...] = ()
    """Per-question file of another evaluation, or a cache of `data score`, to report the agreement with; repeated."""
    measures: Measures = ()
    """Measures of the table by the names of ir_measures, such as 'AP nDCG@10 R(rel=2)@100' (default: MAP, MRR,
    P@1, nDCG and P@20)."""
    trec_run: Path | None = None
    """File for a TREC run of the questions of --subset."""
    trec_qrels: Path | None = None
    """File for the labels of these questions, as TREC qrels."""
    ranking: str = "final"
    """Ranking of --trec-run, such as `exit 1`."""
    tag: str | None = None
    """Tag of the run (default: the name of what is evaluated, and --ranking)."""
    json: Path | None = None
    """File for the figures of all subsets."""
    per_question: Path | None = None
    """File for ranks, scores and figures of every question, one JSON line each, which `eval compare` reads."""
    plot: Path | None = None
    """PNG file for MAP against cost."""
    backend: BackendOptions = OWN

    def __post_init__(self) -> None:
        """Raise UsageError for more than one source of rankings."""
        sources = ("checkpoint", "sequence", "text_ranker", "url", "scores", "run")
        named = [f"--{name.replace('_', '-')}" for name in sources if getattr(self, name)]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)} do not go together")

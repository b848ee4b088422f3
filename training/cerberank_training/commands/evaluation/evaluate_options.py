"""The options of `cerberank evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from cerberank_models.commands.options import OWN, BackendOptions, Windows
from cerberank_models.commands.values import Count, DataSpec, Integers, Whole, data_help
from cerberank_models.drop import RatioSchedule
from cerberank_models.output import UsageError
from cerberank_training.data import Subset
from cerberank_training.data.deep_questions import DEPTH_PAIRS
from cerberank_training.evaluation.measures import Measure, parse_measures


def _parsed(type_: Any, tokens: Sequence[Token]) -> tuple[Measure, ...]:
    return parse_measures(" ".join(token.value for token in tokens))


Measures = Annotated[tuple[Measure, ...], Parameter(converter=_parsed, n_tokens=1)]
"""Names of ir_measures with blanks between them, such as `AP nDCG@10`."""


def _schedules(type_: Any, tokens: Sequence[Token]) -> tuple[RatioSchedule, ...]:
    """One schedule for each time that the option is given."""
    schedules = []
    for token in tokens:
        lexical, colon, ratios = token.value.rpartition(":")
        try:
            parsed = tuple(map(float, ratios.split(","))) if ratios else ()
            schedules.append(RatioSchedule(parsed, lexical=float(lexical) if colon else 0.0))
        except ValueError:
            raise ValueError("takes numbers of at least 0 and below 1, such as 0.3,0.3 or 0.5:0.3,0.3") from None
    return tuple(schedules)


Schedules = Annotated[tuple[RatioSchedule, ...], Parameter(converter=_schedules, n_tokens=1)]
"""Drop ratios of the exits, after the share of the lexical layer and a colon if it drops too."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """The options of `evaluate`."""

    data: Annotated[DataSpec | None, Parameter(help=data_help("Data set, unless there are --qrels"))] = None
    checkpoint: Path | None = None
    """Checkpoint folder, or that of a model to import (default: the bundled one)."""
    sequence: tuple[Path, ...] = ()
    """Checkpoint of a sequence of models, each of which reranks what the one before it kept; once for each model."""
    text_ranker: Path | None = None
    """Folder of a ranker that `train pairwise` wrote; it runs in torch, fp32."""
    url: str | None = None
    """Address of a service to evaluate instead."""
    scores: Path | None = None
    """Scores to evaluate instead: a cache of `data score`, or a file with {"id", "scores": [...]} for each question."""
    run: Path | None = None
    """TREC run to evaluate instead: over the candidates of --data, or over any documents with --qrels."""
    qrels: Path | None = None
    """Judgements for --run, instead of --data."""
    windows: Windows = None
    subset: Subset = "clean"
    """Questions in the table (docs/evaluation.md)."""
    schedule: Schedules = ()
    """Schedule to measure too, such as 0.3,0.3, or 0.5:0.3,0.3 with the lexical layer's share; repeat for several."""
    minimum: Count = 1
    """Least number of candidates that these schedules keep."""
    sample: Count | None = None
    """Number of questions of the subset to draw (default: all)."""
    seed: Whole = 0
    """Random seed."""
    depths: Integers = ()
    """Numbers of candidates, separated by commas, for a table of MAP and P@1 at each of them (docs/evaluation.md)."""
    depth_pairs: Count = DEPTH_PAIRS
    """Most pairs at one depth; a depth with more uses fewer questions."""
    agreement: tuple[Path, ...] = ()
    """Per-question file, or cache of `data score`, to report each head's agreement with; repeat for several."""
    measures: Measures = ()
    """Measures of the table by the names of ir_measures, such as 'AP nDCG@10 R(rel=2)@100' (default: MAP, MRR,
    P@1, nDCG and P@20)."""
    trec_run: Path | None = None
    """File to write a TREC run of the questions of --subset to."""
    trec_qrels: Path | None = None
    """File to write the labels of these questions to, as TREC qrels."""
    ranking: str = "final"
    """Row of the table to write to --trec-run, such as `exit 1`."""
    tag: str | None = None
    """Tag of the run (default: the name of what is evaluated, and --ranking)."""
    json: Path | None = None
    """File to write the figures of all subsets to."""
    per_question: Path | None = None
    """File to write ranks, scores and figures of every question to, one JSON line each, for `results compare`."""
    backend: BackendOptions = OWN

    def __post_init__(self) -> None:
        """Raise UsageError for more than one source of rankings."""
        sources = ("checkpoint", "sequence", "text_ranker", "url", "scores", "run")
        named = [f"--{name.replace('_', '-')}" for name in sources if getattr(self, name)]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)} do not go together")

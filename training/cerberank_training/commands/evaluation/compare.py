"""`cerberank results compare`: two evaluations, question by question."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from cerberank_models.checkpoint.atomic import write_json
from cerberank_models.commands.values import Share
from cerberank_models.output import say, say_written
from cerberank_training.commands.evaluation.evaluate_options import Measures
from cerberank_training.data import Subset
from cerberank_training.evaluation.paired_tests import SIGNIFICANCE, RankingComparison
from cerberank_training.evaluation.paired_tests import compare as compare_rankings
from cerberank_training.evaluation.per_question import check_comparable, read_records
from cerberank_training.evaluation.report import table


def compare(
    a: Path,
    b: Path,
    /,
    *,
    ranking: str = "final",
    ranking_b: str | None = None,
    subset: Subset = "clean",
    measures: Measures = (),
    level: Share = SIGNIFICANCE,
    json: Path | None = None,
) -> RankingComparison:
    """Compare two evaluations question by question: differences, and p-values of paired tests.

    Both files are those of `evaluate --per-question` or `results ensemble` over the same candidates, or of runs
    (`evaluate --run --qrels`) with the same judgements. For more than two: `results table`.

    Args:
        a: Per-question file.
        b: Per-question file to compare with.
        ranking: Row of `evaluate` to compare, such as `exit 1` or `drop 0.3,0.3`.
        ranking_b: Row of B (default: --ranking).
        subset: Questions that count (docs/evaluation.md).
        measures: Measures by the names of ir_measures, such as 'AP nDCG@10 R@100' (default: those of evaluate).
        level: Level of significance for each question's Spearman correlation; CERBERUS uses .01.
        json: File to write the comparison to.
    """
    other = ranking_b or ranking
    first, second = read_records(a, ranking=ranking), read_records(b, ranking=other)
    check_comparable((a, first), (b, second))
    result = compare_rankings(
        first, second, ranking_a=ranking, ranking_b=other, subset=subset, measures=measures, level=level
    )
    say(markdown(result))
    if json:
        write_json(json, asdict(result))
    say_written((json, "this comparison"))
    return result


def markdown(result: RankingComparison) -> str:
    """A table with a row a metric, and the correlation of the orders."""
    header = ["metric", "A", "B", "A - B (standard error)", "p (Wilcoxon)", "p (Student)", "wins / ties / losses"]
    rows = [
        [
            name,
            f"{row.mean_a:.2f}",
            f"{row.mean_b:.2f}",
            f"{row.difference:+.2f} ({row.error:.2f})",
            f"{row.p_value:.2g}",
            f"{row.student_p_value:.2g}",
            f"{row.wins} / {row.ties} / {row.losses}",
        ]
        for name, row in result.metrics.items()
    ]
    correlation = "undefined" if result.spearman is None else f"{result.spearman:.3f}"
    note = (
        f"Spearman correlation of the orders, mean of {result.spearman_questions} questions: {correlation}; "
        f"p < {result.level:g} in {result.spearman_significant} of them."
    )
    return f"{table(header, rows)}\n\n{result.questions} questions. {note}"

"""Names of measures are read as ir_measures reads them, and what it or we do not know is refused."""

from __future__ import annotations

import ir_measures
import pytest

from cerberank_training.evaluation.measures.names import MeasureNameError, parse_measures

NAMES = (
    "AP AP@100 AP(rel=2) RR RR@10 P@1 P(rel=3)@5 R@100 R(rel=2)@1000 Rprec Success@5 nDCG nDCG@10"
    " nDCG(dcg='exp-log2')@10"
)


def test_names_are_those_of_ir_measures() -> None:
    """Each name that we print is one that ir_measures parses and prints alike."""
    measures = [str(measure) for measure in parse_measures(NAMES)]
    assert measures == [str(ir_measures.parse_measure(name)) for name in measures] == NAMES.split()


@pytest.mark.parametrize(("name", "meant"), [("MAP", "AP"), ("MRR@10", "RR@10"), ("ndcg@5", "nDCG@5"), ("P@1", "P@1")])
def test_usual_names_are_understood(name: str, meant: str) -> None:
    """The names of our own tables too."""
    assert [str(measure) for measure in parse_measures(f" {name}, Rprec")] == [meant, "Rprec"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ERR@20", "'ERR@20' is no measure; there are: AP, RR, P, R, Rprec, Success, nDCG"),
        ("P", "'P': P needs a number of places after @"),
        ("Rprec@5", "'Rprec@5': Rprec has no number of places after @"),
        ("P@0", "'P@0' is no measure"),
        ("AP(judged_only=True)", "AP has no option 'judged_only', only 'rel'"),
        ("nDCG(rel=2)@5", "nDCG has no option 'rel', only 'dcg'"),
        ("AP(rel=0)", "rel is a grade of 1 or more, not '0'"),
        ("nDCG(dcg='log10')", "dcg is 'log2' or 'exp-log2', not 'log10'"),
        ("AP(rel)", "expected key=value between the brackets, each key once"),
        ("MAP AP", "the measure AP is named twice"),
        (" ", "no measure is named"),
    ],
)
def test_other_names_are_refused(text: str, message: str) -> None:
    """The message names the measure and what there is."""
    with pytest.raises(MeasureNameError) as refused:
        parse_measures(text)
    assert message in str(refused.value)

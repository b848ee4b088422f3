"""Measures a checkpoint's probabilities on questions of other documents: `python -m tools.calibration_figures DATA`.

DATA contains `squad-as2/`, `domains/SET/`, `howto/SET/` and `wikiqa/`. Half of the questions have no answer, and half
have short lists (`as_asked`); WikiQA's are taken as they are. A near miss is the wrong candidate that shares the most
words with its question; it is scored alone, and beside three random candidates of other sets.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cerberank_models.calibration import probabilities
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.output import say
from cerberank_training.data import Question, read_questions, sampled
from cerberank_training.evaluation.calibration_fit import Scored, first_result
from cerberank_training.evaluation.calibration_questions import as_asked
from cerberank_training.evaluation.first_results import FirstResult, first_result_figures
from cerberank_training.evaluation.report import table
from cerberank_training.evaluation.variants import Scorer, score_questions
from tools.mini_data import SETS

MOST, MISSES, BESIDE = 300, 40, 3
PRECISION = 0.85


def judged(data: Path) -> dict[str, list[Question]]:
    """The questions of each set, at most MOST of a set."""
    specs = {name: f"jsonl:{data / 'domains' / name / 'dev.jsonl.gz'}" for name in SETS if "unans" not in name}
    specs |= {name: f"jsonl:{data / 'howto' / name / 'dev.jsonl.gz'}" for name in ("howto-docs", "commands")}
    specs["squad-as2"] = f"squad-as2-article:{data / 'squad-as2' / 'test.jsonl.gz'}"
    return {name: sampled(read_questions(spec), size=MOST, seed=0, name="raw") for name, spec in specs.items()}


def near_misses(sets: dict[str, list[Question]], beside: int) -> Iterator[Question]:
    """The near miss of at most MISSES questions of each set, with `beside` candidates of other sets."""
    rng = random.Random("near misses")
    for name, questions in sets.items():
        others = [row for other, rows in sets.items() if other != name for each in rows for row in each.candidates[:1]]
        for question in questions[:MISSES]:
            wrong = [row for row in question.candidates if not row.relevant]
            junk = [replace(row, label=0) for row in rng.sample(others, beside)]
            if wrong:
                miss = max(wrong, key=lambda row: len(_words(row.candidate.text) & _words(question.text)))
                yield replace(question, candidates=(miss, *junk))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def row(name: str, firsts: Sequence[FirstResult], threshold: float) -> list[str]:
    """The figures of a set in words, with precision and recall at the threshold."""
    shown, figures = [each for each in firsts if each.score >= threshold], first_result_figures(firsts)
    right = sum(each.right for each in shown)
    precision = f"{right / len(shown):.3f} of {len(shown)}" if shown else "- of 0"
    values = (right / max(1, figures.answered), figures.ece, figures.answerable_ece, figures.auroc or 0.0)
    return [name, str(len(firsts)), precision, *(f"{value:.3f}" for value in values)]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of squad-as2/, domains/, howto/ and wikiqa/")
    parser.add_argument("--checkpoint", type=Path, default=BUNDLED)
    parser.add_argument("--seed", type=int, default=0, help="of the removed answers and shortened lists")
    options = parser.parse_args()
    checkpoint = read_checkpoint(options.checkpoint)
    if (calibration := checkpoint.calibration) is None:
        parser.error(f"{options.checkpoint} is not calibrated")
    scorer = Scorer.open(checkpoint, kind="onnx", precision=calibration.data.precision)

    def firsts(questions: Sequence[Question]) -> list[FirstResult]:
        scored = (Scored.of(*each) for each in score_questions(scorer, questions))
        return [first_result(calibration.stages, each) for each in scored]

    # A table by set, then by wanted precision over all of them.
    sets, threshold = judged(options.data), calibration.threshold_for(PRECISION)
    results = {name: firsts(as_asked(each, unanswered=0.5, seed=options.seed).questions) for name, each in sets.items()}
    every = [each for group in results.values() for each in group]
    results |= {
        "all": every,
        "wikiqa": firsts(list(read_questions(f"wikiqa:{options.data}/wikiqa/WikiQA-test.tsv.gz"))),
    }
    header = [
        "set",
        "questions",
        f"precision at {PRECISION:g}",
        "recall",
        "error of `score`",
        "of `answerable`",
        "AUROC",
    ]
    say(table(header, [row(name, group, threshold) for name, group in results.items()]) + "\n")
    answered = [each for each in every if each.answered]
    dial = [
        [f"{each.wanted:g}", *row("", every, each.threshold)[2:4], row("", answered, each.threshold)[2]]
        for each in calibration.precision
    ]
    say(table(["wanted", "precision", "recall", "precision of answered ones"], dial) + "\n")
    # The near misses alone and beside others: each is the first candidate.
    for beside in (0, BESIDE):
        questions = list(near_misses(sets, beside))
        scored = (Scored.of(*each).final for each in score_questions(scorer, questions))
        last = np.full(1 + beside, len(calibration.stages) - 1)
        passed = [probabilities(calibration.stages, raw, last).scores[0] >= threshold for raw in scored]
        say(f"near misses beside {beside} others: {sum(passed)} of {len(passed)} reach {threshold:.3f}")


if __name__ == "__main__":
    main()

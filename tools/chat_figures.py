"""Compares rules for questions that are too long for a model: `python -m tools.chat_figures DATA`.

CHATS dev questions of each set become the last turn of a chat. An earlier turn is another question of the set, of the
same document if there is one, with its answer. There are so many that they alone exceed the model's limit of a
question, and up to three more. All questions have the chat form of training (`chat_form.py`). A third of the chats are
one line; of the others half have `User:` and `Assistant:` before the turns, and half of these end in
`Assistant:`, on a line of its own.

A rule is the part that is left of a chat: the last question `alone`, the `start` or the `end` of the limit's length,
half of that of each (`start-end`), or `model`, which is all of it, cut by the model. In `quoted` chats the question
stands before the turns, as in a mail; their rules are `quoted start-end` and `quoted model`.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.output import say
from cerberank_training.data import Question, read_questions
from cerberank_training.data.chat_form import chat_form
from cerberank_training.evaluation.paired_tests import compare_metric
from cerberank_training.evaluation.question_metrics import question_metrics, ranks_of
from cerberank_training.evaluation.report import table
from cerberank_training.evaluation.variants import Scorer, score_questions

CHATS, BASE = 50, "model"
SETS = {
    **dict.fromkeys(("squadshifts-wiki", "fairytaleqa", "medquad", "covidqa"), "jsonl:domains/{}/dev.jsonl.gz"),
    **dict.fromkeys(("howto-docs", "commands"), "jsonl:howto/{}/dev.jsonl.gz"),
    "squad-as2": "squad-as2:{}/dev.jsonl.gz",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat:
    """A question in chat form, with the turns before it and a line behind it, which may be empty."""

    question: str
    turns: tuple[str, ...]
    user: str
    behind: str
    joint: str

    @classmethod
    def of(
        cls, question: Question, others: Sequence[Question], tokenizer: Tokenizer, limit: int, rng: random.Random
    ) -> Chat:
        """A chat that ends in `question`, with turns made of `others`."""
        joint, marked = rng.choice((" ", "\n", "\n")), rng.random() < 0.5
        user, assistant = ("User: ", "Assistant: ") if marked and joint == "\n" else ("", "")
        behind = assistant.strip() if rng.random() < 0.5 else ""
        more, turns = rng.randrange(4), list[str]()
        rest = [each for each in others if each.id != question.id]
        near = [each for each in rest if each.title and each.title == question.title]
        for each in (*rng.sample(near, len(near)), *rng.sample(rest, len(rest))):
            if len(tokenizer.encode(joint.join(turns), add_special_tokens=False)) > limit and (more := more - 1) < 0:
                break
            answer = next(row.candidate.text for row in each.candidates if row.relevant)
            turns = [f"{user}{chat_form(each.text, rng)}", f"{assistant}{answer}", *turns]
        return cls(question=chat_form(question.text, rng), turns=tuple(turns), user=user, behind=behind, joint=joint)

    def parts(self, tokenizer: Tokenizer, limit: int) -> Iterator[tuple[str, str]]:
        """Each rule with the text that it leaves."""
        yield "alone", self.question
        whole = self.joint.join(filter(None, (*self.turns, f"{self.user}{self.question}", self.behind)))
        quoted = self.joint.join((self.question, *self.turns))
        spans = tokenizer.encode(whole, add_special_tokens=False).offsets
        yield BASE, whole
        yield "end", whole[spans[-limit][0] :]
        yield "start-end", self._halves(whole, tokenizer, limit)
        yield "start", whole[: spans[limit - 1][1]]
        yield f"quoted {BASE}", quoted
        yield "quoted start-end", self._halves(quoted, tokenizer, limit)

    @staticmethod
    def _halves(text: str, tokenizer: Tokenizer, limit: int) -> str:
        spans, half = tokenizer.encode(text, add_special_tokens=False).offsets, limit // 2
        return f"{text[: spans[half - 1][1]]} {text[spans[half - limit][0] :]}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of domains/, howto/ and squad-as2/")
    parser.add_argument("--checkpoint", type=Path, default=BUNDLED)
    options = parser.parse_args()
    checkpoint = read_checkpoint(options.checkpoint)
    tokenizer, limit = checkpoint.encoder().tokenizer, checkpoint.config.encoding.question_limit
    # The questions of every rule, in the same order.
    questions: dict[str, list[Question]] = {}
    groups: list[tuple[str, str]] = []
    for name, spec in SETS.items():
        rng = random.Random(f"chat/{name}")
        form, _, path = spec.format(name).partition(":")
        answered = [each for each in read_questions(f"{form}:{options.data / path}") if any(each.labels)]
        for question in rng.sample(answered, CHATS):
            chat = Chat.of(question, answered, tokenizer, limit, rng)
            groups.append((name, "lines" if chat.joint == "\n" else "one line"))
            for rule, text in chat.parts(tokenizer, limit):
                questions.setdefault(rule, []).append(replace(question, text=text))
    # MAP and P@1 of each question, shape [questions, 2].
    scorer = Scorer.open(checkpoint, kind="onnx", precision="int8")
    values = {}
    for rule, asked in questions.items():
        rows = []
        for question, scores in score_questions(scorer, asked):
            found = question_metrics(np.asarray(question.labels), ranks_of(scores.stages[-1])).expected
            rows.append([found["map"], found["p@1"]])
        values[rule] = np.array(rows)
    # A row for each rule: its figures, the differences of BASE with their standard errors, and MAP by group.
    kinds = list(dict.fromkeys(kind for group in zip(*groups, strict=True) for kind in group))
    result = []
    for rule, of_rule in values.items():
        compared = [compare_metric(a, b) for a, b in zip(values[BASE].T, of_rule.T, strict=True)]
        by_kind = [100 * of_rule[[kind in group for group in groups], 0].mean() for kind in kinds]
        differences = [f"{each.difference:+.1f} ({each.error:.1f})" for each in compared]
        result.append(
            [rule, *(f"{each.mean_b:.1f}" for each in compared), *differences, *(f"{x:.1f}" for x in by_kind)]
        )
    header = ["rule", "MAP", "P@1", f"MAP of `{BASE}` - this", "P@1", *(f"MAP, {kind}" for kind in kinds)]
    say(f"{len(groups)} chats\n\n{table(header, result)}")


if __name__ == "__main__":
    main()

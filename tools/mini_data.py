"""Writes the data for training, calibrating and measuring cerberank-mini: `python -m tools.mini_data DATA OUT`.

DATA contains `squad-as2/` and `domains/SET/`. The documents of each set's train file are divided by their titles.

- `OUT/train/SET.jsonl.gz` is for training.
- `OUT/carved/SET.jsonl.gz` is for calibration and choices: 6 % of the documents, at most 400 questions of a set.
- `OUT/dev.jsonl.gz` has at most 25 questions from every carved set with answers; those of squad-as2 have all sentences
  of their articles as candidates.
- `OUT/hard-distractors.jsonl.gz` is for measurements and is made of DATA's dev and test files. A question has a
  positive, four hard sentences of the same document, and statements that the following rules make from the positive.
  A rule is used at most once for a question, and only if it applies. Training uses other changes: of numbers and names
  in the question, an added `not`, and since 2.4.0 a removed short answer, which resembles `vague`.
  - vague: the short answer is replaced by `something`, `someone`, `somewhere`, `some time` or `a number of`
  - antonym: a word of ANTONYMS that is also in the question is replaced by its opposite
  - counted: a number word (two, third) that is also in the question is replaced by another number word
  - swapped: two names with at least two words between them, one of which is in the question, change places
  - echo: the question itself, as it would occur in a list of questions
- `OUT/chat/FORM-RULE.jsonl.gz` are for the choice of the part that is read of a question which is too long for
  cerberank-mini: dev questions in chat form, behind the turns before them (`history`) or in front of those (`quoted`).
  A turn is another question in chat form, of the same document if there is one, and its answer. There are so many that
  they alone exceed the limit, and up to three more. A third of the chats are one line; of the others half have `User:`
  and `Assistant:` before the turns, and half of these end in a line `Assistant:`. RULE is the part that is left: the
  question `alone`, the `start` or the `end` of the limit's length, half of it of each (`start-end`), the last `line`
  with at least LEAST tokens, or all (`whole`), which is cut by the model.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from cerberank_models.calibration import folded
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_training.data import Question, open_questions, read_questions
from cerberank_training.data.bm25 import Bm25Index
from cerberank_training.data.chat_form import chat_form
from cerberank_training.data.question import read_lines

SETS = (
    *("squadshifts-wiki", "fairytaleqa", "medquad", "dstc11-reviews", "epqa", "covidqa", "timeqa", "tatqa"),
    *("msdocs-faq", "vagov-faq", "open-faq", "covid-gov-faq", "epqa-unanswerable", "timeqa-unanswerable"),
)
CARVED, MOST_CARVED = 0.06, 400
FROM_SQUAD, FROM_DOMAIN = 400, 60
DEV = 25
WITH_DISTRACTORS = ("squadshifts-wiki", "fairytaleqa", "medquad", "covidqa", "tatqa", "timeqa")
DISTRACTORS = 4
CHATS, LEAST = 50, 5
OPPOSITES = (
    "first last,largest smallest,biggest smallest,highest lowest,high low,higher lower,most least,more less,"
    "before after,north south,northern southern,east west,eastern western,increase decrease,increased decreased,"
    "early late,old new,"
    "older younger,oldest youngest,male female,men women,man woman,boy girl,king queen,brother sister,father mother,"
    "son daughter,husband wife,begin end,began ended,start end,started ended,open close,opened closed,win lose,"
    "won lost,buy sell,bought sold,rich poor,longest shortest,long short,good bad,better worse,best worst,"
    "import export,inside outside,public private,summer winter,day night,child adult,children adults,major minor,"
    "maximum minimum,positive negative,common rare,strong weak,fast slow,left right,upper lower,internal external"
)
ANTONYMS = {word: other for pair in OPPOSITES.split(",") for word, other in (pair.split(), pair.split()[::-1])}
NUMBER_WORDS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
VAGUE = (
    (r"\bhow (many|much)\b", "a number of"),
    (r"\bwho|whom|whose\b", "someone"),
    (r"\b(when|what year|which year|what date|what time)\b", "some time"),
    (r"\bwhere\b", "somewhere"),
)
NAME = re.compile(r"(?<!^)\b[A-Z][\w-]+(?: [A-Z][\w-]+)*")
Rule = Callable[[str, str, tuple[str, ...], random.Random], str | None]


def vague(question: str, text: str, answers: tuple[str, ...], rng: random.Random) -> str | None:
    """The statement with its short answer, of at most five words, replaced by an indefinite word."""
    held = [answer for answer in answers if 1 <= len(answer.split()) <= 5 and answer in text and len(answer) > 2]
    if not held:
        return None
    word = next((word for pattern, word in VAGUE if re.search(pattern, question, re.I)), "something")
    return text.replace(max(held, key=len), word)


def antonym(question: str, text: str, answers: tuple[str, ...], rng: random.Random) -> str | None:
    """The statement with a word that is also in the question replaced by its opposite."""
    return _replaced(question, text, ANTONYMS)


def counted(question: str, text: str, answers: tuple[str, ...], rng: random.Random) -> str | None:
    """The statement with a number word that is also in the question replaced by another one."""
    others = {
        word: rng.choice([other for other in words if other != word])
        for words in (NUMBER_WORDS, ORDINALS)
        for word in words
    }
    return _replaced(question, text, others)


def swapped(question: str, text: str, answers: tuple[str, ...], rng: random.Random) -> str | None:
    """The statement with two of its names exchanged."""
    pairs = [
        (one, two)
        for one, two in pairwise(NAME.finditer(text))
        if (one.group() in question) != (two.group() in question)
        and re.fullmatch(
            r"(?: [a-z]+){2,} ", text[one.end() : two.start()]
        )  # excludes lists, whose meaning does not depend on the order
    ]
    if not pairs:
        return None
    one, two = rng.choice(pairs)
    between = text[one.end() : two.start()]
    return f"{text[: one.start()]}{two.group()}{between}{one.group()}{text[two.end() :]}"


def echo(question: str, text: str, answers: tuple[str, ...], rng: random.Random) -> str | None:
    """The question itself."""
    return question


RULES: tuple[Rule, ...] = (vague, antonym, counted, swapped, echo)


def _replaced(question: str, text: str, others: Mapping[str, str]) -> str | None:
    # The match is case-sensitive, because a capitalised word may be part of a name, such as South Africa.
    shared = [word for word in others if all(re.search(rf"\b{word}\b", each) for each in (question, text))]
    return re.sub(rf"\b{shared[0]}\b", others[shared[0]], text) if shared else None


def with_distractors(question: Question, rng: random.Random) -> dict[str, Any] | None:
    """The question with its first positive, hard sentences of its document, and changed statements.

    None if no rule but `echo` applies or the document has too few sentences.
    """
    positive = next(row.candidate.text for row in question.candidates if row.relevant)
    relevant = {folded(row.candidate.text) for row in question.candidates if row.relevant}
    others = [
        row.candidate.text
        for row in question.candidates
        if not row.relevant
        and folded(row.candidate.text) not in relevant
        and not question.holds_answer(row.candidate.text)
    ]
    changed = {rule.__name__: text for rule in RULES if (text := rule(question.text, positive, question.answers, rng))}
    changed = {name: text for name, text in changed.items() if folded(text) != folded(positive)}
    if len(others) < DISTRACTORS or len(changed) < 2:
        return None
    hard = [others[place] for place in Bm25Index(others).top(question.text, DISTRACTORS)]
    hard += rng.sample([text for text in others if text not in hard], DISTRACTORS - len(hard))
    candidates = [{"text": positive, "label": 1}, *({"text": text, "label": 0} for text in (*hard, *changed.values()))]
    rng.shuffle(candidates)
    return {"question": question.text, "rules": sorted(changed), "candidates": candidates}


def hard_distractors(data: Path) -> Iterator[dict[str, Any]]:
    """The lines of the hard-distractor set, in an order that only depends on the data."""
    sources = {"squad-as2": (f"squad-as2-article:{data / 'squad-as2' / 'test.jsonl.gz'}", FROM_SQUAD)}
    sources |= {
        name: (f"jsonl:{data / 'domains' / name / 'dev.jsonl.gz'}", FROM_DOMAIN)
        for name in WITH_DISTRACTORS
        if (data / "domains" / name).is_dir()
    }
    for name, (spec, most) in sources.items():
        table, rng = open_questions(spec), random.Random(f"distractors/{name}")
        lines = (with_distractors(table[place], rng) for place in rng.sample(range(len(table)), len(table)))
        for number, line in zip(range(most), filter(None, lines), strict=False):
            yield {"id": f"{name}/{number}"} | line


def dev_lines(carved: Path) -> Iterator[dict[str, Any]]:
    """The lines of the dev set."""
    for path in sorted(carved.glob("*.jsonl.gz")):
        name = path.name.removesuffix(".jsonl.gz")
        if name.startswith("articles-"):
            continue
        table = open_questions(f"{'squad-as2-article' if name == 'squad-as2' else 'jsonl'}:{path}")
        answered = [place for place, positives in enumerate(table.positives) if positives]
        for place in random.Random(f"dev/{name}").sample(answered, min(DEV, len(answered))):
            question = table[place]
            rows = [{"text": row.candidate.text, "label": row.label} for row in question.candidates]
            yield {"id": f"{name}/{place}", "question": question.text, "candidates": rows}


def chat_lines(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines of the chats' files, each with the name of its file."""
    checkpoint = read_checkpoint(BUNDLED)
    tokenizer, limit = checkpoint.encoder().tokenizer, checkpoint.config.encoding.question_length
    specs = {
        name: f"jsonl:{data / folder / name / 'dev.jsonl.gz'}"
        for folder, names in (("domains", WITH_DISTRACTORS[:4]), ("howto", ("howto-docs", "commands")))
        for name in names
    }
    for name, spec in (specs | {"squad-as2": f"squad-as2:{data / 'squad-as2' / 'dev.jsonl.gz'}"}).items():
        rng = random.Random(f"chat/{name}")
        questions = [each for each in read_questions(spec) if any(each.labels)]
        for number, question in enumerate(rng.sample(questions, CHATS)):
            chat = Chat.of(question, questions, tokenizer, limit, rng)
            rows = [{"text": row.candidate.text, "label": row.label} for row in question.candidates]
            for file, text in chat.cut(tokenizer, limit):
                yield file, {"id": f"{name}/{number}", "question": text, "candidates": rows}


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

    def cut(self, tokenizer: Tokenizer, limit: int) -> Iterator[tuple[str, str]]:
        """The text by every rule, with the name of its file."""
        ends = filter(None, (f"{self.user}{self.question}", self.behind))
        forms = {"history": (*self.turns, *ends), "quoted": (self.question, *self.turns)}
        yield "alone", self.question
        for form, texts in forms.items():
            whole = self.joint.join(texts)
            spans = tokenizer.encode(whole, add_special_tokens=False).offsets
            half, line = (
                limit // 2,
                next(
                    "\n".join(texts[place:])
                    for place in reversed(range(len(texts)))
                    if place == 0 or len(tokenizer.encode("\n".join(texts[place:]), add_special_tokens=False)) >= LEAST
                ),
            )
            end = whole[spans[-limit][0] :]
            yield f"{form}-start", whole[: spans[limit - 1][1]]
            yield f"{form}-end", end
            yield f"{form}-start-end", f"{whole[: spans[half - 1][1]]} {whole[spans[half - limit][0] :]}"
            yield f"{form}-line", line if self.joint == "\n" and len(line) < len(end) else end
            yield f"{form}-whole", whole


def is_carved(title: str) -> bool:
    """True if the document with this title is held out of the training set."""
    return int(sha256(title.encode()).hexdigest(), 16) % 10_000 < 10_000 * CARVED


def divide(source: Path, train: Path, carved: Path) -> None:
    """Divide the lines of a file of questions into `train` and `carved` by the title of their document."""
    rows = [(line, json.loads(line)["title"]) for _, line in read_lines(source)]
    carved_lines = [line + "\n" for line, title in rows if is_carved(title)]
    write(train, (line + "\n" for line, title in rows if not is_carved(title)))
    if carved_lines:
        write(carved, random.Random(source.name).sample(carved_lines, min(MOST_CARVED, len(carved_lines))))


def write(path: Path, lines: Iterable[str]) -> None:
    """Write a compressed file of lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=6) as file:
        file.writelines(lines)


def main() -> None:
    """Read the arguments and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of squad-as2/ and domains/")
    parser.add_argument("out", type=Path, help="folder to fill")
    options = parser.parse_args()
    data, out = options.data, options.out
    files = {"squad-as2": data / "squad-as2" / "train.jsonl.gz"}
    files |= {name: data / "domains" / name / "train.jsonl.gz" for name in SETS}
    for name, source in files.items():
        divide(source, out / "train" / f"{name}.jsonl.gz", out / "carved" / f"{name}.jsonl.gz")
    articles = (data / "squad-as2" / "articles-train.jsonl.gz").read_bytes()
    for part in ("train", "carved"):
        (out / part / "articles-squad-as2.jsonl.gz").write_bytes(articles)
    sets = {"dev": dev_lines(out / "carved"), "hard-distractors": hard_distractors(data)}
    chats = sorted(chat_lines(data), key=itemgetter(0))
    sets |= {f"chat/{name}": (line for _, line in lines) for name, lines in groupby(chats, key=itemgetter(0))}
    for name, lines in sets.items():
        write(out / f"{name}.jsonl.gz", (json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


if __name__ == "__main__":
    main()

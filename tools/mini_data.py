"""Writes the data for training, calibrating and measuring cerberank-mini: `python -m tools.mini_data DATA OUT`.

DATA contains `squad-as2/`, `domains/SET/` and `howto/SET/`. The documents of each set's train file are divided by
their titles.

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
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from cerberank_models.calibration import folded
from cerberank_training.data import Question, open_questions
from cerberank_training.data.bm25 import Bm25Index
from cerberank_training.data.question import read_lines

SETS = (
    *("squadshifts-wiki", "fairytaleqa", "medquad", "dstc11-reviews", "epqa", "covidqa", "timeqa", "tatqa"),
    *("msdocs-faq", "vagov-faq", "open-faq", "covid-gov-faq", "epqa-unanswerable", "timeqa-unanswerable"),
)
HOWTO = ("howto-docs", "commands")
CARVED, MOST_CARVED = 0.06, 400
FROM_SQUAD, FROM_DOMAIN = 400, 60
DEV = 25
WITH_DISTRACTORS = ("squadshifts-wiki", "fairytaleqa", "medquad", "covidqa", "tatqa", "timeqa")
DISTRACTORS = 4
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
    parser.add_argument("data", type=Path, help="folder of squad-as2/, domains/ and howto/")
    parser.add_argument("out", type=Path, help="folder to fill")
    options = parser.parse_args()
    data, out = options.data, options.out
    files = {"squad-as2": data / "squad-as2" / "train.jsonl.gz"}
    files |= {name: data / "domains" / name / "train.jsonl.gz" for name in SETS}
    files |= {name: data / "howto" / name / "train.jsonl.gz" for name in HOWTO}
    for name, source in files.items():
        divide(source, out / "train" / f"{name}.jsonl.gz", out / "carved" / f"{name}.jsonl.gz")
    articles = (data / "squad-as2" / "articles-train.jsonl.gz").read_bytes()
    for part in ("train", "carved"):
        (out / part / "articles-squad-as2.jsonl.gz").write_bytes(articles)
    for name, lines in (("dev", dev_lines(out / "carved")), ("hard-distractors", hard_distractors(data))):
        write(out / f"{name}.jsonl.gz", (json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


if __name__ == "__main__":
    main()

"""Small TREC collections, written where a test asks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

TOPICS = """
<top>
<num> Number: 301
<title> long
  rivers
<desc> Description:
Which rivers are long?
</top>
<top>
<num> Number: 021 </num>
<title> Topic: lakes &amp; seas </title>
</top>
<top>
<num> Number: 400
<title> unjudged
</top>
"""
NEWS = """<DOC>
<DOCNO> N-1 </DOCNO>
<HEADLINE>
<P>Rhine</P>
</HEADLINE>
<TEXT>
A long river &amp; a border.<!-- PJG -->
</TEXT>
</DOC>

<DOC><DOCNO>N-2</DOCNO><TEXT>A lake</TEXT><TEXT>that is deep</TEXT></DOC>
"""
LINES = [
    {"id": "J-1", "title": "Nile", "text": "A river that nobody judged", "url": "ignored"},
    {"id": "J-2", "text": "The sea and long rivers"},
    {"id": "J-3", "text": "A lake, no sea"},
]
QRELS = """301 0 N-1 2
301 0 J-2 1
301 0 N-2 0
301 0 gone 1
21 0 N-2 1
21 0 J-3 -1
"""
RUN = """301 Q0 J-2 1 9.5 tag
301 Q0 J-1 3 7.5 tag
301 Q0 N-2 2 7.5 tag
21 Q0 J-1 1 3e0 tag
21 Q0 N-2 2 4.0 tag
"""


def write_collection(folder: Path) -> Path:
    """Documents in three formats, TREC topics, graded qrels and a run."""
    (folder / "documents" / "news").mkdir(parents=True)
    with gzip.open(folder / "documents" / "news" / "n01.gz", "wt") as file:
        file.write(NEWS)
    (folder / "documents" / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    (folder / "documents" / "more.tsv").write_text("T-1\tA plain text\n")
    (folder / "queries.topics").write_text(TOPICS)
    (folder / "qrels.txt").write_text(QRELS)
    (folder / "run.txt").write_text(RUN)
    return folder


WEB = {
    "clueweb09-en0008-57-21952": "the family of obama",
    "clueweb09-en0010-39-03468": "obama in office",
    "clueweb09-enwp00-56-14435": "buy a family tree",
    "clueweb09-enwp01-99-13448": "obama family tree in four charts",
    "clueweb09-en0003-77-22206": "horse hooves",
    "clueweb09-en0006-99-36331": "hooves and how to trim them",
}
WEB_JUDGED = (("1", 0, 1), ("1", 1, 0), ("1", 2, -2), ("1", 3, 3), ("51", 5, 1), ("51", 4, 0), ("101", 4, 1))
WEB_RUN = (("1", 0), ("1", 1), ("1", 2), ("1", 3), ("51", 4), ("101", 4))


def write_web_collection(folder: Path) -> Path:
    """ClueWeb09b's form: JSON lines, queries as TSV, graded judgements with spam (-2), Indri's run, qrels of a part."""
    ids = list(WEB)
    (folder / "documents.jsonl").write_text("".join(json.dumps({"id": each, "text": WEB[each]}) + "\n" for each in ids))
    (folder / "queries.tsv").write_text(
        "1\tobama family tree\n51\thorse hooves\n101\tritz carlton\n151\tno judgement\n"
    )
    (folder / "qrels.txt").write_text("".join(f"{query} 0 {ids[n]} {grade}\n" for query, n, grade in WEB_JUDGED))
    lines = (f"{query} Q0 {ids[n]} {rank} -{4 + rank / 9:.5f} indri\n" for rank, (query, n) in enumerate(WEB_RUN, 1))
    (folder / "indri.run").write_text("".join(lines))
    part = [line for line in (folder / "qrels.txt").read_text().splitlines(keepends=True) if line.split()[0] != "101"]
    (folder / "train.qrels").write_text("".join(part))
    return folder

"""docs/train-cerberus.md, from raw files to a service: every command as it stands, but for bases, steps and ports."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

from tests.e2e.shell import blocks, run_in_shell
from tests.tiny import save_cross_encoder

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.model_card import RUN

LETTERS, NOUNS = "abcdefgh", ("city", "river", "tower", "word")
BASES = {
    "google/electra-large-discriminator": "electra",
    "albert-xxlarge-v2": "albert",
    "roberta-large": "roberta",
    "google/electra-base-discriminator": "electra",
}
SHAPE = {"num_hidden_layers": 12, "max_position_embeddings": 160, "initializer_range": 0.1}  # int8 must be near fp32
SHORT = "--steps 4 --evaluate-every 2 --examples-per-step 8"


def write_files(folder: Path) -> None:
    """The raw files in their public forms: 16 questions of ASNQ for training, 8 for dev and test, 8 of each of WikiQA's
    parts, of which one has no answer.
    """
    pairs = list(product(NOUNS, LETTERS))
    lists = {"train": pairs[:16], "dev": pairs[16:20], "test": pairs[20:24]}
    asked = {name: [f"what {noun} is {letter} ?" for noun, letter in part] for name, part in lists.items()}
    for name in ("dev", "test"):
        (folder / f"unique.{name}").write_text("\n".join(asked[name]) + "\n")
    # Label 4 is right; dev.tsv has the questions of both lists.
    for name, parts in (("train", ("train",)), ("dev", ("dev", "test"))):
        rows = [
            f"what {noun} is {letter} ?\t{other} is a {noun}\t{4 if other == letter else 1 + place % 3}\n"
            for part in parts
            for noun, letter in lists[part]
            for place, other in enumerate(LETTERS)
        ]
        (folder / f"{name}.tsv").write_text("".join(rows))
    header = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
    for number, name in enumerate(("train", "dev", "test")):
        rows = [
            f"Q{number}{letter}\twho wrote the {NOUNS[number]} {letter} ?\tD{letter}\tthe {letter}\tD{letter}-{place}\t"
            f"{other} wrote it\t{int(other == letter and letter != 'f')}\n"
            for letter in LETTERS[:6]
            for place, other in enumerate(LETTERS[:6])
        ]
        (folder / f"WikiQA-{name}.tsv").write_text(header + "".join(rows))


def test_the_paper_s_cerberus_from_raw_files_to_a_service(tmp_path: Path) -> None:
    """The student is B11 3H1 with the three teachers in their order, is measured on the questions with an answer, and
    is served; questions, pairs and positives are counted.
    """
    write_files(tmp_path)
    script = re.sub(r"^pip install .*\n", "", blocks("train-cerberus.md"), flags=re.MULTILINE)
    for number, (name, family) in enumerate(BASES.items()):
        save_cross_encoder(family, tmp_path / f"base-{number}", **SHAPE)
        script, found = re.subn(rf"(?<!\S){re.escape(name)}$", f"base-{number}", script, flags=re.MULTILINE)
        script = script.replace(f"transfer {name} ", f"transfer base-{number} ")
        assert found or f"transfer base-{number} " in script
    script = re.sub(r"(--recipe cerberus/\S+)", rf"\1 {SHORT}", script)
    script = re.sub(r"^(cerberank serve .*)$", r"\1 &", script, flags=re.MULTILINE)
    printed = run_in_shell(script, tmp_path)
    for line in (
        "| asnq:train.tsv | clean | 16 | 128 | 16 |",
        "| asnq:dev.tsv?questions=unique.dev | clean | 4 | 32 | 4 |",
        "| wikiqa:WikiQA-test.tsv | raw | 6 | 36 | 5 |",
        "| wikiqa:WikiQA-test.tsv | clean | 5 | 30 | 5 |",
    ):
        assert line in printed
    checkpoint = read_checkpoint(tmp_path / "runs" / "b11-3h1" / "checkpoint")
    assert (str(checkpoint.config.architecture), checkpoint.config.encoding.windows) == ("B11 3H1", "off")
    summary = json.loads((checkpoint.path / RUN).read_text())
    assert [each["name"] for each in summary["teachers"]] == ["electra", "albert", "roberta"]
    assert re.search(r"^\| final \|.* 5 / 30 \|$", printed, re.MULTILINE)
    answer = json.loads(re.findall(r'\{"id":.*"results".*\}$', printed, re.MULTILINE)[-1])
    assert [len(each["heads"]) for each in answer["results"]] == [3, 3]

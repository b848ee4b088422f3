"""docs/cerberus.md: every command of the page, with twins of the published files."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

import pytest
from tests.authors_cerberus import save, twin
from tests.e2e.shell import blocks, run_in_shell
from tests.tanda import Twin
from tools.process import installed


def wikiqa(questions: int) -> str:
    """A file of WikiQA's columns, with three candidates a question."""
    rows = [
        f"Q{n}\thow tall is tower {n}\tD{n}\tTower\tD{n}-{m}\tit is {m} metres\t{int(m == 1)}"
        for n in range(questions)
        for m in range(3)
    ]
    return "\n".join(["QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel", *rows, ""])


def published(folder: Path) -> None:
    """The files that the page names, with twins and tiny data in them."""
    (folder / "made").mkdir()
    for name in ("cerberus11-3_albert_electra_roberta_asnq", "cerberus11-3_albert_electra_roberta_asnq_wikiqa"):
        save(twin().state(), folder / "made" / name)
    Twin("electra", architectures=["TandaElectra"]).save(folder / "made" / "asnq-electra-base-discriminator")
    for place in sorted((folder / "made").iterdir()):
        shutil.make_archive(str(folder / place.name), "zip", folder / "made", place.name)
    for name in ("tanda_roberta_base_asnq", "tanda_roberta_large_asnq_wikiqa"):
        with tarfile.open(folder / f"{name}.tar", "w") as archive:
            archive.add(Twin("roberta").save(folder / "made" / name / "ckpt"), f"models/{name}/ckpt")
    shutil.rmtree(folder / "made")
    for number, part in enumerate(("train", "dev", "test"), start=2):
        (folder / f"WikiQA-{part}.tsv").write_text(wikiqa(number))
    (folder / "dev.tsv").write_text("".join(f"how {n}\tit is {m}\t{4 - m}\n" for n in range(5) for m in range(4)))
    for part, numbers in (("dev", range(2)), ("test", range(2, 5))):
        (folder / f"unique.{part}").write_text("".join(f"how {number}\n" for number in numbers))


def test_every_command_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a folder with the downloads; services start, answer, and are ended."""
    installed("unzip", "unzip")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    published(tmp_path)
    ready = "curl -sf --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:8000/health/ready"
    ask = f"{ready}\ncurl -sf http://127.0.0.1:8000/v1/models\nkill $!\nwait $! || true"
    script = re.sub(r"^pip install .*\n", "", blocks("cerberus.md"), flags=re.MULTILINE)
    script = re.sub(r"^(cerberank serve \S+)$", rf"\1 &\n{ask}", script, flags=re.MULTILINE)
    printed = run_in_shell(script, tmp_path)
    assert re.findall(r'"architecture":"([^"]+)".*?"max_length":128,"windows":"off"', printed) == ["B2 3H1", "B3 1H1"]
    assert [line.split("|")[-2].strip() for line in printed.splitlines() if line.startswith("| final")] == [
        *("4 / 12", "3 / 12", "4 / 12")
    ]

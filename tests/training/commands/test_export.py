"""`cerberank export`: a head for transformers and the hub, and the texts of --int8-texts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.http_server import Asked, answering
from tests.program import program
from transformers import AutoModelForSequenceClassification

from cerberank_training.commands.export import HubError, check_repository, push_folder

main = program("export")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hugging-face"], "B3 3H1 with 3 heads and exits, and a sequence classifier is one encoder"),
        (["--hugging-face", "--head", "4"], "--head is from 1 to 3, not 4"),
        (["--hugging-face", "--forms", "int8"], "--forms is for a checkpoint"),
        (["--hugging-face", "--no-weights"], "--no-weights is for a checkpoint"),
        (["--hugging-face", "--gate", "jsonl:x"], "--gate is for a checkpoint"),
        (["--hugging-face", "--private"], "--private is for --push-to-hub"),
        (["--hugging-face", "--push-to-hub", "x"], "a repository is OWNER/NAME"),
        (["--head", "1"], "--head is for --hugging-face"),
        (["--push-to-hub", "a/b"], "--push-to-hub is for --hugging-face"),
        (["--private"], "--private is for --hugging-face"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    options: list[str], message: str, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names the option, exit code 1 or 2, no folder."""
    assert main([str(tiny_checkpoint), str(tmp_path / "out"), *options]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("cerberank export: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_head_is_written_with_a_word_on_long_pairs(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint caps questions, which no tokenizer of transformers does."""
    assert main([str(tiny_checkpoint), str(tmp_path / "out"), "--hugging-face", "--head", "2"]) == 0
    error = capsys.readouterr().err
    assert "pairs of more than 48 tokens, or questions of more than 16, are cut in another way" in error
    assert f"{tmp_path / 'out'} loads with AutoModelForSequenceClassification and CrossEncoder" in error
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").config.num_labels == 1


@dataclass
class Hub:
    """Takes every file into a commit, as the hub takes small ones; refuses a token other than `secret`."""

    url: str = ""
    made: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def respond(self, asked: Asked) -> tuple[int, object, dict[str, str]]:
        """The answer to a request of huggingface_hub."""
        if asked.headers["authorization"] != "Bearer secret":
            return 401, {"error": "Invalid username or password."}, {}
        content: dict[str, Any] = {"errors": [], "warnings": []}  # /api/validate-yaml
        if asked.method == "GET":
            content = {"id": "team/ranker", "sha": "0" * 40, "siblings": []}
        elif asked.path == "/api/repos/create":
            self.made.append(json.loads(asked.body))
            content = {"url": f"{self.url}/team/ranker", "name": "team/ranker"}
        elif "/preupload/" in asked.path:
            mode = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
            content = {"files": [{"path": file["path"]} | mode for file in json.loads(asked.body)["files"]]}
        elif "/commit/" in asked.path:
            for line in map(json.loads, asked.body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            address = f"{self.url}/team/ranker/commit/{'1' * 40}"
            content = {"commitUrl": address, "commitOid": "1" * 40, "success": True}
        return 200, content, {"Content-Type": "application/json"}


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    with answering(hub.respond) as hub.url:
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}")
    (tmp_path / "folder" / "model.safetensors").write_bytes(bytes(range(256)))
    (tmp_path / "folder" / "README.md").write_text("---\npipeline_tag: text-ranking\n---\n# ranker\n")
    return tmp_path / "folder"


def test_all_files_arrive_in_one_commit(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their bytes, in a private repository that is made; the answer is the commit's address."""
    monkeypatch.setenv("HF_TOKEN", "secret")
    url = push_folder(folder, "team/ranker", private=True, endpoint=hub.url)
    assert url == f"{hub.url}/team/ranker/commit/{'1' * 40}"
    assert hub.files == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert [(made["organization"], made["name"], made["visibility"]) for made in hub.made] == [
        ("team", "ranker", "private")
    ]


def test_a_refusal_is_one_line_and_the_folder_stays(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that the hub does not take."""
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(HubError, match=r"folder is written, and was not uploaded to team/ranker: .*401") as caught:
        push_folder(folder, "team/ranker", private=False, endpoint=hub.url)
    assert "\n" not in str(caught.value)
    assert (folder / "config.json").is_file()


@pytest.mark.parametrize("wrong", ["ranker", "a/b/c", "a b/c", "team/--x"])
def test_what_is_no_repository_is_refused(wrong: str) -> None:
    """Before anything is written."""
    with pytest.raises(HubError, match="--push-to-hub"):
        check_repository(wrong)


@pytest.mark.parametrize(
    ("data", "message"), [("nowhere.jsonl", "No such file"), ("letters:nowhere", "data is named FORMAT:PATH")]
)
def test_data_that_are_not_there_are_refused(
    data: str, message: str, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("export")([str(tiny_checkpoint), str(tmp_path / "out"), "--int8-texts", data]) == 1
    assert message in capsys.readouterr().err

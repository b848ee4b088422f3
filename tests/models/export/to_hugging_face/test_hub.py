"""A folder reaches a repository as one commit: against a small stand-in of the hub, never the hub itself."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cerberank_models.export.to_hugging_face.hub import HubError, check_repository, push_folder


class Hub(ThreadingHTTPServer):
    """Takes every file into a commit, as the hub takes small ones; refuses a token other than `secret`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.made: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.headers["Authorization"] != "Bearer secret":
            return self._answer(401, {"error": "Invalid username or password."})
        return self._answer(200, {"id": "team/ranker", "sha": "0" * 40, "siblings": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != "Bearer secret":
            return self._answer(401, {"error": "Invalid username or password."})
        if self.path == "/api/repos/create":
            self.server.made.append(json.loads(body))
            return self._answer(200, {"url": f"{self.server.url}/team/ranker", "name": "team/ranker"})
        if "/preupload/" in self.path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for file in json.loads(body)["files"]
            ]
            return self._answer(200, {"files": files})
        if "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            commit = {"commitUrl": f"{self.server.url}/team/ranker/commit/{'1' * 40}", "commitOid": "1" * 40}
            return self._answer(200, commit | {"success": True})
        return self._answer(200, {"errors": [], "warnings": []})  # /api/validate-yaml

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


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

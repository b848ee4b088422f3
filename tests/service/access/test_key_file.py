from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from cerberank.cli import main

from cerberank_service.access.key_file import KeysError, add_key, read_keys, remove_key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_a_key_is_not_in_the_file(path: Path) -> None:
    """The file contains only the key's hash, and two keys differ."""
    secrets = [add_key(path, name) for name in ("a", "b")]
    assert secrets[0] != secrets[1]
    assert all(len(secret) >= 40 and secret.removeprefix("cbk-") not in path.read_text() for secret in secrets)
    assert [key.name for key in read_keys(path)] == ["a", "b"]


def test_a_removed_key_is_gone_and_others_stay(path: Path) -> None:
    """A key is removed by its unique name."""
    for name in ("a", "b"):
        add_key(path, name, requests_per_minute=3, tokens_per_minute=4)
    remove_key(path, "a")
    (left,) = read_keys(path)
    assert (left.name, left.requests_per_minute, left.tokens_per_minute) == ("b", 3, 4)
    with pytest.raises(KeysError, match="no key a"):
        remove_key(path, "a")
    with pytest.raises(KeysError, match="b already"):
        add_key(path, "b")


def test_keys_that_are_made_at_once_are_all_there(path: Path) -> None:
    """Four processes; none loses another's."""
    context = multiprocessing.get_context("fork")
    makers = [context.Process(target=add_key, args=(path, f"key-{number}")) for number in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert {key.name for key in read_keys(path)} == {f"key-{number}" for number in range(4)}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "file: "),
        ("[]", "file: "),
        ('{"keys": [{"name": "a", "created": ""}]}', "keys.0.sha256"),
        ('{"keys": [{"name": "a", "created": "", "sha256": "00"}]}', "keys.0.sha256"),
        ('{"keys": [{"name": "../a", "created": "", "sha256": "%s"}]}' % ("0" * 64), "keys.0.name"),
        ('{"keys": [{"name": "a", "created": "", "sha256": "%s", "requests_per_minute": 0}]}' % ("0" * 64), "requests"),
        ('{"keys": [], "key": []}', "key: "),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_field(path: Path, content: str, said: str) -> None:
    """An unknown field too: a misspelt quota must not be none."""
    path.write_text(content)
    with pytest.raises(KeysError, match=rf"keys\.json: .*{said}"):
        read_keys(path)


def test_two_keys_of_one_name_are_refused(path: Path) -> None:
    """Quotas and metrics go by the name."""
    add_key(path, "a")
    add_key(path, "b")
    path.write_text(path.read_text().replace('"b"', '"a"'))
    with pytest.raises(KeysError, match="one name"):
        read_keys(path)


def test_the_verb_makes_lists_and_removes(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output holds the key alone, so that a script can take it."""
    monkeypatch.setenv("CERBERANK_KEYS_FILE", str(path))
    assert main(["admin", "keys", "add", "search", "--requests-per-minute", "60"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("cbk-")
    assert shown.count("\n") == 1
    assert main(["admin", "keys", "list"]) == 0
    assert "60 requests and any tokens a minute" in capsys.readouterr().out
    assert main(["admin", "keys", "remove", "search"]) == 0
    assert read_keys(path) == ()
    assert main(["admin", "keys", "remove", "search"]) == 1
    assert "no key search" in capsys.readouterr().err
    assert main(["admin", "keys", "add", "no/name"]) == 1
    assert main(["admin", "keys", "add", "a", "--tokens-per-minute", "0"]) == 2
    monkeypatch.delenv("CERBERANK_KEYS_FILE")
    assert main(["admin", "keys", "list"]) == 1
    assert "CERBERANK_KEYS_FILE" in capsys.readouterr().err

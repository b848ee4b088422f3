"""`cerberank settings`: values and their sources."""

from __future__ import annotations

import pytest
from cerberank.cli import main


def test_values_come_with_their_source(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The environment or the default; secrets are not shown, and a word selects."""
    monkeypatch.setenv("CERBERANK_MAX_CANDIDATES", "77")
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", "a-secret-of-some-length")
    assert main(["settings"]) == 0
    printed = capsys.readouterr().out
    assert "CERBERANK_MAX_CANDIDATES=77  [environment]" in printed
    assert "CERBERANK_PORT=8000  [default]" in printed
    assert "a-secret" not in printed
    assert "CERBERANK_ADMIN_TOKEN=(set)  [environment]" in printed
    assert main(["settings", "--changed"]) == 0
    assert "[default]" not in capsys.readouterr().out
    assert main(["settings", "max_candidates"]) == 0
    assert [line.partition("=")[0] for line in capsys.readouterr().out.splitlines()] == ["CERBERANK_MAX_CANDIDATES"]
    assert main(["settings", "colour"]) == 0
    assert capsys.readouterr().err == "no setting has 'colour' in its name or meaning\n"


def test_wrong_settings_are_errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as those with which the service does not start."""
    monkeypatch.setenv("CERBERANK_PROT", "1")
    assert main(["settings"]) == 1
    assert "is CERBERANK_PORT meant?" in capsys.readouterr().err

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cerberank_service import settings as settings_module
from cerberank_service.settings import Settings, SettingsError, read_settings
from cerberank_service.settings.environment import REMOVED

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "eight"),
        ("PORT", "70000"),
        ("BACKEND", "tensorflow"),
        ("STEP_TOKENS", "1"),
        ("TRUSTED_PROXIES", "10.0.0.1, proxy"),
        ("TRUSTED_PROXIES", "10.0.0.1/8"),
    ],
)
def test_a_bad_value_is_refused_by_the_variable_s_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """The message names the variable and repeats the value."""
    monkeypatch.setenv(f"CERBERANK_{name}", value)
    with pytest.raises(SettingsError, match=f"CERBERANK_{name}=.*{re.escape(value)}"):
        read_settings()


@pytest.mark.parametrize("value", ['"rerank-v3.5"', "'a-secret-of-the-tests'", "rerank-v3.5\n", "\x1b[31m"])
def test_a_value_that_a_file_of_variables_has_spoilt_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Every variable is named without its value, which may be a secret."""
    for name in ("CERBERANK_ALIASES", "CERBERANK_HOST", "CERBERANK_ADMIN_TOKEN"):
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            with pytest.raises(SettingsError, match=name) as refused:
                read_settings()
            assert value not in str(refused.value)


def test_every_wrong_variable_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removed ones in upper and lower case, then one that nothing resembles; an empty one is left out, as templates do.

    None of the removed ones is a setting.
    """
    monkeypatch.setenv("CERBERANK_XYZZY", "1")
    monkeypatch.setenv("CERBERANK_MAX_WINDOWS", "9")
    monkeypatch.setenv("cerberank_encode_workers", "2")
    named = r"(?s)CERBERANK_ENCODE_WORKERS.*threads.*CERBERANK_MAX_WINDOWS.*; CERBERANK_XYZZY is not a setting$"
    with pytest.raises(SettingsError, match=named):
        read_settings()
    for name in ("CERBERANK_XYZZY", "CERBERANK_MAX_WINDOWS", "cerberank_encode_workers"):
        monkeypatch.setenv(name, "")
    assert read_settings() == Settings()
    assert not {name.removeprefix("CERBERANK_").lower() for name in REMOVED} & Settings.model_fields.keys()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("KEY_FILE", "KEYS_FILE"),
        ("QUEUE_SECOND", "QUEUE_SECONDS"),
        ("port_", "PORT"),
        ("ADMN_PORT", "ADMIN_PORT"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_right_one(
    monkeypatch: pytest.MonkeyPatch, name: str, nearest: str
) -> None:
    """A service that a typing error leaves without keys must not start; the value may be a secret."""
    monkeypatch.setenv(f"CERBERANK_{name}", "9000")
    with pytest.raises(
        SettingsError, match=f"CERBERANK_{name.upper()} is not a setting; is CERBERANK_{nearest} meant"
    ) as caught:
        read_settings()
    assert "9000" not in str(caught.value)


def test_variables_of_kubernetes_and_of_the_commands_are_no_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod gets them for the Services `cerberank-proxy` and `cerberank`, but for the latter's CERBERANK_PORT."""
    for service in ("CERBERANK", "CERBERANK_PROXY"):
        monkeypatch.setenv(f"{service}_SERVICE_HOST", "10.0.0.7")
        monkeypatch.setenv(f"{service}_SERVICE_PORT", "8000")
        monkeypatch.setenv(f"{service}_SERVICE_PORT_HTTP", "8000")
        for name, value in (("", "tcp://10.0.0.7:8000"), ("_PROTO", "tcp"), ("_PORT", "8000"), ("_ADDR", "10.0.0.7")):
            monkeypatch.setenv(f"{service}_PORT_8000_TCP{name}", value)
    monkeypatch.setenv("CERBERANK_PROXY_PORT", "tcp://10.0.0.7:8000")
    monkeypatch.setenv("CERBERANK_ADMIN_URL", "http://127.0.0.1:8001")
    assert read_settings() == Settings()


@pytest.mark.parametrize("name", ["CERBERANK_PORT", "CERBERANK_ADMIN_PORT"])
def test_a_port_that_kubernetes_has_overwritten_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A Service named `cerberank` (or `cerberank-admin`) sets it in every pod of its namespace."""
    monkeypatch.setenv(name, "tcp://10.0.0.7:8000")
    with pytest.raises(
        SettingsError, match=f"{name}='tcp://10.0.0.7:8000': set by Kubernetes .* enableServiceLinks: false"
    ):
        read_settings()


def test_nothing_else_in_the_service_reads_the_environment() -> None:
    """Only the client programs read variables of their own; other readers would skip the validation."""
    package = Path(settings_module.__file__).parents[1]
    readers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\b(os\.environ|getenv)\b", path.read_text())
    }
    clients = {"commands/admin.py", "commands/probe.py"}
    assert readers == {"settings/environment.py", *clients}

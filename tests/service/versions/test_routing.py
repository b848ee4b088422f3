from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.versions.routing import RoutingSettings, in_canary, route
from cerberank_service.versions.state import ModelState, Snapshot, State, VersionState

NAMES = RoutingSettings(aliases=frozenset({"rerank-v3.5"}))


def model(*ready: str, dead: str = "", **serving: str) -> ModelState:
    """A model with versions that are ready; the engine of the one that is `dead` has failed."""
    lives: dict[str, Any] = {v: SimpleNamespace(engine=SimpleNamespace(alive=v != dead)) for v in ready}
    versions = {version: VersionState(status=State.READY, size=0, live=live) for version, live in lives.items()}
    return ModelState(versions=versions, serving=serving)  # type: ignore[arg-type]


def snapshot(**changes: Any) -> Snapshot:
    models = {"m": model("1", "2", "3", "4", stable="2", canary="3", shadow="4"), "n": model("7", stable="7")}
    options: dict[str, Any] = {"models": models, "default": "m"}
    return Snapshot(**options | changes)


def refused(name: str | None, version: str | None = None, **changes: Any) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        route(snapshot(**changes), NAMES, name, version, "q")
    return caught.value


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        (None, None, ("m", "2")),
        ("", None, ("m", "2")),
        ("m", None, ("m", "2")),
        ("rerank-v3.5", None, ("m", "2")),
        ("n", None, ("n", "7")),
        ("m@stable", None, ("m", "2")),
        ("m@canary", None, ("m", "3")),
        ("m@shadow", None, ("m", "4")),
        ("rerank-v3.5@canary", None, ("m", "3")),
        ("m@1", None, ("m", "1")),
        ("m", "1", ("m", "1")),
        ("m@1", "1", ("m", "1")),
        (None, "4", ("m", "4")),
    ],
)
def test_what_a_name_means(name: str | None, version: str | None, expected: tuple[str, str]) -> None:
    """A model alone is its stable version; labels and versions that are ready can be named; aliases are the default."""
    assert route(snapshot(), NAMES, name, version, "q") == Reference(*expected)


@pytest.mark.parametrize(
    ("name", "version"),
    [("gpt", None), ("m@9", None), ("n@canary", None), ("m@", "9"), ("m@1", "2"), ("../m", None), ("m@../../x", None)],
)
def test_any_other_name_is_not_found(name: str, version: str | None) -> None:
    """404, naming what would do."""
    error = refused(name, version)
    assert error.kind is Kind.NOT_FOUND
    assert refused("gpt").message == "there is no model 'gpt'; served: m, n, rerank-v3.5; CERBERANK_ALIASES adds names"
    assert "served: 1, 2, 3, 4, canary, shadow, stable" in refused("m@9").message
    assert len(refused("x" * 100_000).message) < 300


def test_what_is_not_ready_yet_is_unavailable() -> None:
    """503, so that the client tries again: a model without a stable version, or no default model."""
    waiting = {"m": model("1")}
    assert refused("m", models=waiting).kind is Kind.UNAVAILABLE
    assert refused(None, default=None).kind is Kind.UNAVAILABLE
    assert refused("rerank-v3.5", default=None).kind is Kind.UNAVAILABLE


@given(question=st.text(), first=st.floats(0, 100), second=st.floats(0, 100))
def test_the_canary_s_share_is_sticky(question: str, first: float, second: float) -> None:
    """A question that is in a share is in every larger one; none is in 0 %, all are in 100 %."""
    small, large = sorted((first, second))
    assert in_canary(question, large) or not in_canary(question, small)
    assert not in_canary(question, 0.0)
    assert in_canary(question, 100.0)


def test_the_canary_gets_its_share() -> None:
    """The share of 10,000 questions is within four standard deviations; a named label is not random."""
    names = RoutingSettings(canary_percent=20.0)
    questions = [f"question {number}?" for number in range(10_000)]
    versions = [route(snapshot(), names, "m", None, question).version for question in questions]
    assert set(versions) == {"2", "3"}
    assert abs(versions.count("3") - 2000) < 160
    assert {route(snapshot(), names, "m@stable", None, question).version for question in questions[:100]} == {"2"}
    assert {route(snapshot(), names, "n", None, question).version for question in questions[:100]} == {"7"}


def test_a_dead_canary_gets_no_share() -> None:
    """The stable version answers; who names the canary still gets it, and with it the error."""
    names = RoutingSettings(canary_percent=100.0)
    dead = {"models": {"m": model("2", "3", dead="3", stable="2", canary="3")}}
    assert route(snapshot(**dead), names, "m", None, "q").version == "2"
    assert route(snapshot(**dead), names, "m@canary", None, "q").version == "3"

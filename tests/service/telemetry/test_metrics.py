from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import generate_latest
from starlette.testclient import TestClient
from tests.service.asking import held
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, FakeBackend
from tests.service.observe import samples, wait_until

from cerberank_service.errors import Kind
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.series import PHASES, SECONDS

MODEL = "model=fake-ranker"
VERSION = "version=7"


def test_all_series_exist_before_the_first_request(client: TestClient) -> None:
    """A dashboard never shows a gap, and a rate never misses the first event."""
    before = set(samples(client))
    client.post("/v1/rank", json={"question": "q", "candidates": ["a", "b"], "drop_ratio": 0.5})
    client.post("/v1/rank", json={"question": "q", "candidates": ["a"], "deadline_ms": 0.001})
    client.post("/v1/rank", json={"question": "q", "candidates": []})
    client.post("/v1/rank", content=b"{")
    client.get("/nowhere")
    assert set(samples(client)) == before


def test_the_alert_on_descriptors_has_its_figures(client: TestClient) -> None:
    figures = samples(client)
    assert 0 < figures["process_open_fds{}"] <= figures["process_max_fds{}"]


def test_series_without_a_model_exist_while_it_loads() -> None:
    """Errors by kind are there from the first scrape."""
    text = generate_latest(Metrics().registry).decode()
    for kind in Kind:
        assert f'cerberank_errors_total{{kind="{kind.label}"}} 0.0' in text


def test_an_answer_is_counted_once(serve: Serve) -> None:
    """Candidates, tokens by stage, drops by stage, duplicates, truncated ones, phases."""
    backend = FakeBackend()
    client = serve(backend)
    before, padding = samples(client), backend.counts.padding_tokens
    candidates = ["a", "bc", "def", "def", "x " * 100]
    body = {"question": "q", "candidates": candidates, "drop_ratio": [0.5, 0.0], "windows": "off"}
    answer = client.post("/v1/rank", json=body).json()
    after = samples(client)
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    labels = f"{MODEL},{VERSION}"
    assert grown[f"cerberank_requests_total{{complete=true,{labels}}}"] == 1
    assert grown[f"cerberank_request_candidates_sum{{{labels}}}"] == 5
    assert grown[f"cerberank_duplicate_candidates_total{{{labels}}}"] == 1
    assert grown[f"cerberank_truncated_candidates_total{{{labels}}}"] == 1
    assert grown[f"cerberank_dropped_candidates_total{{{MODEL},stage=0,{VERSION}}}"] == 2
    assert f"cerberank_dropped_candidates_total{{{MODEL},stage=1,{VERSION}}}" not in grown
    assert grown[f"cerberank_tokens_total{{{MODEL},stage=0,{VERSION}}}"] == answer["usage"]["tokens"]
    assert grown[f"cerberank_padding_tokens_total{{{labels}}}"] == backend.counts.padding_tokens - padding
    for stage in range(3):
        assert grown[f"cerberank_engine_steps_total{{{MODEL},stage={stage},{VERSION}}}"] == 1
    for phase in PHASES:
        which = f"{{{MODEL},phase={phase},{VERSION}}}"
        assert grown[f"cerberank_request_phase_seconds_count{which}"] == 1
        assert grown.get(f"cerberank_request_phase_seconds_sum{which}", 0.0) == pytest.approx(
            answer["timing_ms"][phase] / 1000.0, abs=1e-6
        )
    assert not any(name.startswith("cerberank_errors") for name in grown)


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("/v1/rank", b"{", Kind.MALFORMED),
        ("/v1/rank", b'{"question": "", "candidates": ["a"]}', Kind.INVALID),
        ("/v1/rank", b'{"question": "q", "candidates": ["a"], "model": "x"}', Kind.NOT_FOUND),
        ("/v1/rank", b" " * 2000, Kind.TOO_LARGE),
        ("/v1/rank", b'{"question": "q", "candidates": ["%s"]}' % RAISES.encode(), Kind.INTERNAL),
        ("/nowhere", b"", Kind.NOT_FOUND),
        ("/health/live", b"", Kind.METHOD_NOT_ALLOWED),
        ("/rerank", b"{", Kind.MALFORMED),
    ],
)
def test_an_error_is_counted_once_by_its_kind(serve: Serve, path: str, content: bytes, kind: Kind) -> None:
    """The error counter rises by one, and the counter of answers does not."""
    client = serve(FakeBackend(), max_body_bytes=1024)
    before = samples(client)
    client.post(path, content=content)
    after = samples(client)
    errors = {name for name in after if name.startswith("cerberank_errors") and after[name] != before[name]}
    assert errors == {f"cerberank_errors_total{{kind={kind.label}}}"}
    assert sum(after[name] - before[name] for name in errors) == 1
    requests = [name for name in after if name.startswith("cerberank_requests_total")]
    assert all(after[name] == before[name] for name in requests)


def test_what_is_under_way_shows_while_it_is(serve: Serve) -> None:
    """In-flight requests and their tokens rise and fall back to zero."""
    backend = FakeBackend()
    client = serve(backend)
    with ThreadPoolExecutor(3) as pool:
        with held(backend):
            body = {"question": "q", "candidates": ["a"]}
            waiting = [pool.submit(client.post, "/v1/rank", json=body) for _ in range(3)]
            wait_until(lambda: samples(client)["cerberank_requests_in_flight{}"] == 3)
            wait_until(lambda: samples(client)["cerberank_queued_tokens{}"] > 0)
        assert {future.result(20).status_code for future in waiting} == {200}
    assert samples(client)["cerberank_requests_in_flight{}"] == 0
    assert samples(client)["cerberank_queued_tokens{}"] == 0


def test_latency_buckets_are_made_for_milliseconds() -> None:
    """A rerank takes 1 to 1,000 ms: at least ten buckets lie there."""
    assert tuple(sorted(SECONDS)) == SECONDS
    assert sum(0.001 <= bound <= 1.0 for bound in SECONDS) >= 10


def test_two_apps_do_not_share_their_figures(serve: Serve) -> None:
    """Each has a registry of its own."""
    first, second = serve(FakeBackend()), serve(FakeBackend())
    first.get("/nowhere")
    assert samples(first)["cerberank_errors_total{kind=not_found}"] == 1
    assert samples(second)["cerberank_errors_total{kind=not_found}"] == 0

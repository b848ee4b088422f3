"""The proxy of `deploy/nginx`, run by Debian's nginx in front of a replica that says what it was asked."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.testclient import TestClient
from tests.deploy.replica import Replica, listening
from tests.service.observe import wait_until
from tools.mtail import Counting, counting
from tools.nginx import CONFIGURATION, Proxy, command, configure, directive, proxying

from cerberank_service.http.error_responses import REQUEST_ID
from cerberank_service.settings import Settings

MEGABYTE = 1024 * 1024
Start = Callable[..., Proxy]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts nginx in front of replicas: `start(Replica(), Replica(status=503))`."""
    with ExitStack() as stack:

        def begin(*replicas: Replica, **changes: str) -> Proxy:
            for replica in replicas:
                replica.url = replica.url or stack.enter_context(listening(replica))
            texts = {text: new for each in changes.values() for text, new in [each.split(" -> ")]}
            return stack.enter_context(proxying(tmp_path / "nginx", [each.url for each in replicas], texts))

        yield begin


def test_nginx_accepts_it(tmp_path: Path) -> None:
    """`nginx -t` on the committed files; and with their TLS lines, which then lack only the key."""
    configure(tmp_path / "nginx", 8000, ["http://127.0.0.1:1"])
    result = subprocess.run(command(tmp_path / "nginx", "-t"), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    listen = tmp_path / "nginx" / "listen.conf"
    lines = listen.read_text().splitlines()
    listen.write_text("\n".join(line.removeprefix("# ") for line in lines if line.endswith(";")))
    result = subprocess.run(command(tmp_path / "nginx", "-t"), capture_output=True, text=True, check=False)
    assert "cannot load certificate" in result.stderr


def test_its_limits_are_the_service_s(no_settings: None) -> None:
    """A body that passes is not too large for the service; nginx closes idle connections to replicas first."""
    (body,) = directive("client_max_body_size")
    assert int(body.removesuffix("m")) * MEGABYTE <= Settings.model_fields["max_body_bytes"].default
    times = [float(value.removesuffix("s")) for value in directive("keepalive_timeout")]
    assert max(times) < Settings.model_fields["keep_alive_seconds"].default


def test_documented_paths_and_pages_pass_and_no_other(start: Start, client: TestClient) -> None:
    """Every path of the OpenAPI document, pages and their files; not /metrics, in any spelling of it."""
    replica = Replica()
    proxy = start(replica)
    document = client.get("/openapi.json").json()
    public = [path.replace("{model}", "m").replace("{version}", "1") for path in document["paths"]]
    pages = ["/", "/status", "/docs", "/openapi.json", "/assets/style.css"]
    with httpx.Client(base_url=proxy.url) as asking:
        assert {path: asking.get(path).status_code for path in (*public, *pages)} == dict.fromkeys(
            [*public, *pages], 200
        )
    assert [path for path, _, _ in replica.requests] == [*public, *pages]
    replica.requests.clear()
    others = ["/metrics", "//metrics", "/v1/../metrics", "/v1/%2e%2e/metrics", "/v1%2f..%2fmetrics", "/%6detrics"]
    for path in (*others, "/metrics?x=/v1/rank", "/admin", "/rerank2", "/v3/rank", "http://other/metrics"):
        assert exchange(proxy, f"GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n".encode())[0] == 404, path
    assert replica.requests == []


def test_fields_of_one_connection_end_at_the_proxy(start: Start) -> None:
    """Upgrade, Connection and what they name are not forwarded; bodies have a length; ids and addresses are set."""
    replica = Replica()
    proxy = start(replica)
    head = (
        "POST /v1/rank HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade, HTTP2-Settings, keep-alive\r\n"
        "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nTE: trailers\r\nTrailer: X-A\r\nKeep-Alive: 300\r\n"
        "X-Forwarded-For: 1.2.3.4\r\nX-Request-Id: mine-1\r\nRetry-After: 1\r\nAuthorization: Bearer key\r\n"
        "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-A: b\r\n\r\n"
    )
    status, fields, _ = exchange(proxy, head.encode())
    assert status == 200
    assert fields["x-request-id"] == "mine-1"
    ((_, seen, length),) = replica.requests
    assert length == 2
    hop_by_hop = {"connection", "upgrade", "http2-settings", "te", "trailer", "keep-alive", "transfer-encoding"}
    assert not hop_by_hop & set(seen)
    expected = {"x-request-id": "mine-1", "x-forwarded-for": "127.0.0.1", "authorization": "Bearer key"}
    assert {name: seen[name] for name in expected} == expected


def test_an_id_is_kept_by_the_service_s_own_rule(start: Start) -> None:
    """All that the service would keep; one that is longer, or could forge a log line, is replaced."""
    (rule,) = re.findall(r'"~\^(.+)\$" \$http_x_request_id;', (CONFIGURATION / "nginx.conf").read_text())
    assert rule == REQUEST_ID.pattern
    proxy = start(Replica())
    for sent, stays in (("trace:1-" + "a" * 120, True), ("a" * 129, False), ('a" b', False)):
        answer = httpx.get(f"{proxy.url}/v1/models", headers={"X-Request-Id": sent})
        assert (answer.headers["x-request-id"] == sent) == stays


@pytest.mark.parametrize("fault", ["gone", "hangs", "busy"])
def test_a_post_is_tried_on_another_replica(start: Start, fault: str) -> None:
    """A replica may refuse connections, answer too late, or say 503: the client sees the other's answer."""
    released = threading.Event()
    faulty = Replica(status=503, headers={"Retry-After": "7"}) if fault == "busy" else Replica()
    if fault == "gone":
        faulty.url = "http://127.0.0.1:1"
    if fault == "hangs":
        faulty.hang = released
    good = Replica()
    try:
        proxy = start(faulty, good, time="proxy_read_timeout 60s -> proxy_read_timeout 1s")
        with httpx.Client(base_url=proxy.url) as client:
            assert {client.post("/v1/rank", content=b"{}").status_code for _ in range(4)} == {200}
        assert len(good.requests) == 4
        assert len(faulty.requests) == (0 if fault == "gone" else 2)
    finally:
        released.set()


def test_the_last_replica_s_refusal_is_passed_on(start: Start) -> None:
    """Twice 503: the second one's Retry-After and body go to the client, and neither replica is put aside for it."""
    replicas = [Replica(status=503, answer=b'{"busy": true}', headers={"Retry-After": "7"}) for _ in range(2)]
    proxy = start(*replicas)
    with httpx.Client(base_url=proxy.url) as client:
        for _ in range(3):
            answer = client.post("/v1/rank", content=b"{}")
            assert (answer.status_code, answer.json(), answer.headers["retry-after"]) == (503, {"busy": True}, "7")
    assert [len(replica.requests) for replica in replicas] == [3, 3]


def test_without_a_replica_the_answer_says_when_to_come_back(start: Start) -> None:
    """503 with Retry-After and the service's error format, not a page."""
    proxy = start(Replica(url="http://127.0.0.1:1"), Replica(url="http://127.0.0.1:2"))
    answer = httpx.post(f"{proxy.url}/v1/rank", content=b"{}", headers={"X-Request-Id": "one"})
    assert_unavailable(answer, "one")


def test_a_body_that_does_not_fit_into_the_proxy_s_memory_may_come_again(start: Start) -> None:
    """Nginx' own 500 becomes 503 with Retry-After, and no replica is blamed."""
    replica = Replica()
    proxy = start(replica)
    bodies = proxy.folder / "bodies"
    bodies.rmdir()
    bodies.touch()  # no file can be made in it, as on a full tmpfs
    answer = httpx.post(f"{proxy.url}/v1/rank", content=b" " * MEGABYTE, headers={"X-Request-Id": "one"})
    assert_unavailable(answer, "one")
    assert replica.requests == []


def assert_unavailable(answer: httpx.Response, request_id: str) -> None:
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"] == {
        "kind": "unavailable",
        "message": "the service cannot take this now; try again",
        "request_id": request_id,
    }


def test_the_pages_files_are_asked_of_a_replica_once_a_minute(start: Start) -> None:
    """By path, whatever the query string, though the service lets no browser keep them; nothing else is kept."""
    replica = Replica(headers={"Cache-Control": "no-cache"})
    proxy = start(replica)
    with httpx.Client(base_url=proxy.url) as client:
        for path in ("/assets/large.js", "/v1/models"):
            answers = [client.get(f"{path}?{number}") for number in range(5)]
            assert {(answer.status_code, answer.headers["cache-control"]) for answer in answers} == {(200, "no-cache")}
            assert len({answer.headers["x-request-id"] for answer in answers}) == 5
    assert [path for path, _, _ in replica.requests] == ["/assets/large.js?0", *(f"/v1/models?{n}" for n in range(5))]


def test_a_large_body_is_refused_before_a_replica_sees_it(start: Start) -> None:
    """413 by its length or by its chunks; 4 MB pass."""
    replica = Replica()
    proxy = start(replica)
    with httpx.Client(base_url=proxy.url) as client:
        assert client.post("/v1/rank", content=b" " * 4 * MEGABYTE).status_code == 200
        assert client.post("/v1/rank", content=b" " * (4 * MEGABYTE + 1)).json()["error"]["kind"] == "too_large"
        chunks = (b" " * 65536 for _ in range(65))
        assert client.post("/v1/rank", content=chunks).status_code == 413
    assert [length for _, _, length in replica.requests] == [4 * MEGABYTE]


def test_one_address_has_a_share(start: Start) -> None:
    """Requests beyond the rate and requests in progress beyond their number get 429 with Retry-After."""
    released = threading.Event()
    replica = Replica(hang=released)
    proxy = start(
        replica,
        rate="rate=100r/s -> rate=1r/s",
        burst="burst=200 -> burst=6",
        most="limit_conn addresses 100 -> limit_conn addresses 4",
    )
    with ThreadPoolExecutor(9) as pool:
        asking = [pool.submit(httpx.get, f"{proxy.url}/v1/models", timeout=30) for _ in range(9)]
        while sum(each.done() for each in asking) < 5:
            pass
        refused = [each.result() for each in asking if each.done()]
        released.set()
        statuses = sorted(each.result().status_code for each in asking)
    assert statuses == [200] * 4 + [429] * 5
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert {answer.json()["error"]["kind"] for answer in refused} == {"exhausted"}
    last = [httpx.get(f"{proxy.url}/v1/models").status_code for _ in range(9)]
    assert 429 in last, "beyond the rate, one after the other"


def test_an_answer_that_nobody_reads_costs_the_replica_nothing(start: Start) -> None:
    """The replica has written 15 MB and is done while the client has read nothing, and others are answered."""
    replica = Replica(answer=b"x" * 15 * MEGABYTE)
    proxy = start(replica)
    parts = urlsplit(proxy.url)
    with socket.create_connection((parts.hostname, parts.port)) as client:
        client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n")
        assert replica.done.wait(20.0)
        replica.answer = b"{}"
        assert httpx.get(f"{proxy.url}/v1/models").content == b"{}"


def test_a_log_line_of_an_error_names_the_request(start: Start) -> None:
    """Method and path of what nginx itself refuses: no replica, a large body or head, too many requests."""
    proxy = start(
        Replica(url="http://127.0.0.1:1"), rate="rate=100r/s -> rate=1r/m", burst="burst=200 nodelay -> burst=2 nodelay"
    )
    sent = [httpx.post(f"{proxy.url}/v1/rank", content=b" " * size) for size in (2, 4 * MEGABYTE + 1, 2, 2, 2)]
    exchange(proxy, b"POST /v1/rank HTTP/1.1\r\nHost: t\r\nX: " + b"x" * 40_000 + b"\r\n\r\n")
    wait_until(lambda: proxy.log.count('{"time"') == 6)
    entries = [json.loads(line) for line in proxy.log.splitlines() if line.startswith("{")]
    assert [(entry["method"], entry["path"]) for entry in entries] == [("POST", "/v1/rank")] * 6
    assert [answer.status_code for answer in sent] == [503, 413, 503, 503, 429]
    assert [entry["status"] for entry in entries] == [503, 413, 503, 503, 429, 431]


@pytest.mark.parametrize(
    ("line", "status"),
    [("GET\t/v1/models HTTP/1.1", 400), (f"GET /{'a' * 9000} HTTP/1.1", 414), ("TRACE /v1/models HTTP/1.1", 405)],
)
def test_a_malformed_request_gets_the_error_format(start: Start, line: str, status: int) -> None:
    """Also one without a path that nginx could read."""
    answered, fields, body = exchange(start(Replica()), f"{line}\r\nHost: t\r\n\r\n".encode())
    assert (answered, fields["content-type"]) == (status, "application/json")
    assert set(json.loads(body)["error"]) == {"kind", "message", "request_id"}


def test_a_log_line_is_one_object_without_texts(start: Start) -> None:
    """Status, upstream, times and id; no query string, and quotes in a path are escaped."""
    proxy = start(Replica())
    httpx.get(f'{proxy.url}/v1/a"b?question=secret', headers={"X-Request-Id": "mine"})
    wait_until(lambda: '{"time"' in proxy.log)
    (line,) = [line for line in proxy.log.splitlines() if line.startswith("{")]
    entry: dict[str, Any] = json.loads(line)
    assert (entry["path"], entry["status"], entry["request_id"]) == ('/v1/a"b', 200, "mine")
    assert "secret" not in proxy.log


@pytest.fixture
def mtail() -> Iterator[Counting]:
    with counting() as running:
        yield running


@pytest.fixture
def start_counted(tmp_path: Path, mtail: Counting) -> Iterator[Callable[[Sequence[str]], Proxy]]:
    """Starts nginx in front of the URLs of replicas; it sends its lines to mtail."""
    with ExitStack() as stack:
        yield lambda urls: stack.enter_context(proxying(tmp_path / "nginx", urls, mtail.changes))


def test_a_question_that_is_tried_twice_counts_once(
    start_counted: Callable[[Sequence[str]], Proxy], mtail: Counting
) -> None:
    """By what its client saw: one that the second replica answered is an answer, 503 from both is one failure."""
    busy, other = Replica(status=503), Replica()
    with listening(busy) as first, listening(other) as second:
        proxy = start_counted([first, second])
        with httpx.Client(base_url=proxy.url) as client:
            answered = [client.post("/v1/rank", content=b"{}").status_code for _ in range(4)]
            assert (answered, len(busy.requests)) == ([200] * 4, 2)
            other.status = 503
            assert client.post("/v1/rank", content=b"{}").status_code == 503
            other.status = 422
            assert client.post("/v1/rank", content=b"{}").status_code == 422
            assert client.get("/v1/models").status_code == 422
            assert client.post("/v1/rank", content=b" " * (4 * MEGABYTE + 1)).status_code == 413
            other.status = 200
            assert client.post("/v1/rank", content=b"{}").status_code == 200
    wait_until(lambda: mtail.lines() == 9)
    assert (mtail.value("answered"), mtail.value("failed")) == (5, 1)


def test_a_question_that_no_replica_could_take_is_a_failure(
    start_counted: Callable[[Sequence[str]], Proxy], mtail: Counting
) -> None:
    """All replicas are gone; Prometheus reads the counts through nginx."""
    proxy = start_counted(["http://127.0.0.1:1", "http://127.0.0.1:2"])
    with httpx.Client(base_url=proxy.url) as client:
        assert [client.post("/v1/rank", content=b"{}").status_code for _ in range(3)] == [503] * 3
        assert client.get("/v1/models").status_code == 503
    wait_until(lambda: mtail.lines() == 4)
    page = httpx.get(f"{proxy.counts}/metrics").text
    assert "\ncerberank_proxy_answered_total 0\n" in page
    assert "\ncerberank_proxy_failed_total 3\n" in page


def test_without_mtail_the_page_of_counts_is_empty(start: Start) -> None:
    """But it answers, because it says that nginx runs; mtail's own end does not look like the proxy's."""
    proxy = start(Replica())
    answer = httpx.get(f"{proxy.counts}/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain")
    assert answer.text == "# mtail does not respond\n"
    assert httpx.get(f"{proxy.counts}/v1/models").status_code == 404


def test_five_hundred_lines_in_a_second_are_counted(mtail: Counting) -> None:
    """Answers, failures, and clients that hung up after five seconds; no page, and no client that soon hung up."""
    counted = {"POST 200 0.012": 300, "POST 503 0.001": 100, "POST 499 5.000": 25, "POST 499 60.104": 25}
    others = {"GET 200 0.001": 20, "POST 499 4.999": 15, "POST 413 7.000": 15}
    lines = [line for line, times in (counted | others).items() for _ in range(times)]
    host, _, port = mtail.log.partition(":")
    begin = time.monotonic()
    with socket.socket(type=socket.SOCK_DGRAM) as sending:
        for number, line in enumerate(lines):
            time.sleep(max(0.0, begin + number / len(lines) - time.monotonic()))
            sending.sendto(f"<190>Nov 28 07:00:00 host nginx: {line}\n".encode(), (host, int(port)))
    wait_until(lambda: mtail.lines() == len(lines) == 500)
    assert (mtail.value("answered"), mtail.value("failed")) == (300, 150)


def exchange(proxy: Proxy, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    """The first answer to bytes on a connection of their own: status, header fields, the body's first bytes."""
    parts = urlsplit(proxy.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(sent)
        head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(status.split()[1]), fields, body

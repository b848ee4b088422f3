"""The Ingress example: its object is valid, its paths and limits are those of `deploy/nginx`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from starlette.testclient import TestClient
from tests.deploy.test_kubernetes import FOLDER, render
from tools.nginx import directive

from cerberank_service.settings import Settings

PREFIX = "nginx.ingress.kubernetes.io/"
INGRESS: dict[str, Any] = yaml.safe_load((FOLDER / "ingress" / "ingress.yaml").read_text())
CONTROLLER: dict[str, Any] = yaml.safe_load((FOLDER / "ingress" / "controller.yaml").read_text())["controller"][
    "config"
]
PATHS = INGRESS["spec"]["rules"][0]["http"]["paths"]


def test_it_fits_its_published_schema_and_its_service(tmp_path: Path) -> None:
    """As a component of somebody's own kustomization; it leads to the service's port."""
    for name in ("base", "ingress"):
        shutil.copytree(FOLDER / name, tmp_path / name)
    (tmp_path / "mine").mkdir()
    mine = {"resources": ["../base"], "components": ["../ingress"]}
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    objects = render(tmp_path / "mine")
    kubernetes_validate.validate(objects["Ingress"], kubernetes_validate.latest_version(), strict=True)
    service = {"name": "cerberank", "port": {"name": objects["Service"]["spec"]["ports"][0]["name"]}}
    assert objects["Service"]["metadata"]["name"] == service["name"]
    settings = {name.removeprefix("CERBERANK_").lower(): value for name, value in objects["ConfigMap"]["data"].items()}
    assert Settings.model_validate(settings).trusted_proxies, "log lines would name the controller as the client"
    assert [path["backend"]["service"] for path in PATHS] == [service] * len(PATHS)


def matches(path: str) -> bool:
    """True if a rule leads to the service, by Kubernetes' own rules: a prefix is whole parts of a path."""
    return any(
        path == rule["path"] or (rule["pathType"] == "Prefix" and path.startswith(f"{rule['path']}/")) for rule in PATHS
    )


def test_it_forwards_what_the_proxy_forwards(client: TestClient) -> None:
    """Documented paths and pages, and no metrics; one list says the same in both forms."""
    (pattern,) = re.findall(r"location ~ (\S+) \{", (FOLDER.parent / "nginx" / "nginx.conf").read_text())
    documented = [path.replace("{", "").replace("}", "") for path in client.get("/openapi.json").json()["paths"]]
    public = [*documented, "/", "/status", "/docs", "/openapi.json", "/assets/style.css"]
    for path in (*public, "/metrics", "/admin", "/v3/rank", "/rerank2"):
        assert matches(path) == (path in public) == bool(re.search(pattern, path)), path


@pytest.mark.parametrize(
    ("name", "annotation"),
    [
        ("client_max_body_size", "proxy-body-size"),
        ("client_body_buffer_size", "client-body-buffer-size"),
        ("proxy_request_buffering", "proxy-request-buffering"),
        ("proxy_buffering", "proxy-buffering"),
        ("proxy_buffer_size", "proxy-buffer-size"),
        ("proxy_max_temp_file_size", "proxy-max-temp-file-size"),
        ("proxy_http_version", "proxy-http-version"),
        ("proxy_connect_timeout", "proxy-connect-timeout"),
        ("proxy_send_timeout", "proxy-send-timeout"),
        ("proxy_read_timeout", "proxy-read-timeout"),
        ("proxy_next_upstream", "proxy-next-upstream"),
        ("proxy_next_upstream_tries", "proxy-next-upstream-tries"),
    ],
)
def test_an_annotation_says_what_the_proxy_s_directive_says(name: str, annotation: str) -> None:
    """Seconds have no unit there."""
    (value,) = directive(name)
    assert INGRESS["metadata"]["annotations"][PREFIX + annotation] == re.sub(r"^(\d+)s$", r"\1", value)


def test_an_address_has_the_same_share() -> None:
    """The burst is a multiple of the rate there."""
    annotations = INGRESS["metadata"]["annotations"]
    rate = int(annotations[f"{PREFIX}limit-rps"])
    burst = rate * int(annotations[f"{PREFIX}limit-burst-multiplier"])
    assert directive("limit_req_zone")[0].endswith(f"rate={rate}r/s")
    assert f"burst={burst} " in directive("limit_req")[0]
    assert directive("limit_conn") == [f"addresses {annotations[f'{PREFIX}limit-connections']}"]


def test_the_controller_s_limits_are_the_proxy_s() -> None:
    """Times of heads and bodies, sizes of heads, statuses; the rest of them as a snippet."""
    for name in ("client_header_timeout", "client_body_timeout", "client_header_buffer_size"):
        assert CONTROLLER[name.replace("_", "-")] == directive(name)[0].removesuffix("s")
    assert [CONTROLLER["large-client-header-buffers"]] == directive("large_client_header_buffers")
    for name in ("limit_conn_status", "limit_req_status"):
        assert CONTROLLER[f"{name.replace('_', '-')}-code"] == directive(name)[0]
    for line in CONTROLLER["http-snippet"].splitlines():
        name, value = line.rstrip(";").split(" ", 1)
        assert directive(name) == [value]

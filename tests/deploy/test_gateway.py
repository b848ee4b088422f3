"""The Gateway API example: its objects lead to the service, its paths and limits are those of `deploy/nginx`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import yaml
from starlette.testclient import TestClient
from tests.deploy.test_kubernetes import FOLDER, mebibytes, render
from tools.nginx import directive

from cerberank_service.settings import Settings

ROUTE: dict[str, Any] = yaml.safe_load((FOLDER / "gateway" / "http-route.yaml").read_text())
POLICY: dict[str, Any] = yaml.safe_load((FOLDER / "gateway" / "backend-traffic-policy.yaml").read_text())["spec"]
(RULE,) = ROUTE["spec"]["rules"]
PATHS = [each["path"] for each in RULE["matches"]]


def test_it_leads_to_the_service(tmp_path: Path) -> None:
    """As a component of somebody's own kustomization; the policy is that of the route."""
    for name in ("base", "gateway"):
        shutil.copytree(FOLDER / name, tmp_path / name)
    (tmp_path / "mine").mkdir()
    mine = {"resources": ["../base"], "components": ["../gateway"], "namespace": "ranking"}
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    objects = render(tmp_path / "mine")
    service = objects["Service"]
    backend = {"name": service["metadata"]["name"], "port": service["spec"]["ports"][0]["port"]}
    assert objects["HTTPRoute"]["spec"]["rules"][0]["backendRefs"] == [backend]
    (target,) = objects["BackendTrafficPolicy"]["spec"]["targetRefs"]
    route = objects["HTTPRoute"]
    assert target == {
        "group": route["apiVersion"].partition("/")[0],
        "kind": route["kind"],
        "name": route["metadata"]["name"],
    }
    settings = {name.removeprefix("CERBERANK_").lower(): value for name, value in objects["ConfigMap"]["data"].items()}
    assert Settings.model_validate(settings).trusted_proxies, "log lines would name the gateway as the client"


def matches(path: str) -> bool:
    """True if the route takes the path, by the Gateway API's own rules: a prefix is whole parts of a path."""
    return any(
        path == rule["value"] or (rule["type"] == "PathPrefix" and path.startswith(f"{rule['value']}/"))
        for rule in PATHS
    )


def test_it_forwards_what_the_proxy_forwards(client: TestClient) -> None:
    """Documented paths and pages, and no metrics; one list says the same in both forms."""
    assert len(PATHS) <= 64, "more than a rule may have"
    (pattern,) = re.findall(r"location ~ (\S+) \{", (FOLDER.parent / "nginx" / "nginx.conf").read_text())
    documented = [path.replace("{", "").replace("}", "") for path in client.get("/openapi.json").json()["paths"]]
    public = [*documented, "/", "/status", "/docs", "/openapi.json", "/assets/style.css"]
    for path in (*public, "/metrics", "/admin", "/v3/rank", "/rerank2"):
        assert matches(path) == (path in public) == bool(re.search(pattern, path)), path


def test_its_limits_are_the_proxy_s() -> None:
    """Body, times and tries; the health check asks the readiness probe's path."""
    assert [f"{mebibytes(POLICY['requestBuffer']['limit'])}m"] == directive("client_max_body_size")
    tries = POLICY["retry"]["numRetries"] + 1
    assert [str(tries)] == directive("proxy_next_upstream_tries")
    assert RULE["timeouts"]["backendRequest"] in directive("proxy_read_timeout")
    assert RULE["timeouts"]["request"] == f"{tries * int(RULE['timeouts']['backendRequest'].removesuffix('s'))}s"
    assert POLICY["timeout"]["tcp"]["connectTimeout"] in directive("proxy_connect_timeout")
    assert POLICY["retry"]["retryOn"]["httpStatusCodes"] == [503]
    deployment = yaml.safe_load((FOLDER / "base" / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    checked = POLICY["healthCheck"]["active"]["http"]["path"]
    assert checked == container["readinessProbe"]["httpGet"]["path"]

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.nginx import directive
from tools.process import installed

from cerberank_service.serve import GRACE_SECONDS
from cerberank_service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_docker_compose_accepts_it() -> None:
    """With all profiles; the file is only read, no daemon is asked."""
    program = installed("docker-compose", "docker-compose")
    command = [program, "--file", str(ROOT / "docker-compose.yml"), "--profile", "*", "config", "--quiet"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists_and_cannot_be_written(name: str) -> None:
    """Docker would make an empty folder of a mistyped one; named volumes are declared."""
    for mount in SERVICES[name].get("volumes", []):
        source, _, rest = mount.partition(":")
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert rest.endswith(":ro")
        elif source.startswith("${"):
            assert rest.endswith(":ro")  # the caller's own folder
        else:
            assert source in COMPOSE["volumes"]


def test_the_proxy_may_write_only_to_a_bounded_place() -> None:
    """A read-only root, no capabilities, not root; bodies and answers lie in a tmpfs with a size."""
    proxy = SERVICES["proxy"]
    assert proxy["read_only"]
    assert proxy["cap_drop"] == ["ALL"]
    assert proxy["user"] != "0:0"
    assert proxy["tmpfs"] == ["/tmp:size=512m"]
    paths = [*directive("pid"), *(path for name in ("client_body", "proxy") for path in directive(f"{name}_temp_path"))]
    assert len(paths) == 3
    assert not [path for path in paths if not path.startswith("/tmp/")]


def test_prometheus_scrapes_the_service_and_grafana_asks_prometheus() -> None:
    """By the names and ports that compose gives them."""
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    for job, name, port in (
        ("cerberank", "cerberank", Settings.model_fields["port"].default),
        ("cerberank-proxy", "proxy", int(directive("listen")[0])),  # count.conf
    ):
        (scraping,) = [each for each in config["scrape_configs"] if each["job_name"] == job]
        (discovery,) = scraping["dns_sd_configs"]  # every address of the name, not one of them
        assert (discovery["names"], discovery["type"], discovery["port"]) == ([name], "A", port)
        assert name in SERVICES
    assert SERVICES["proxy-counts"]["network_mode"] == "service:proxy"
    source = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    assert "prometheus" in SERVICES


def test_prometheus_sends_alerts_to_alertmanager() -> None:
    """By the name and port that compose gives it; its configuration lies where it is told to look."""
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    (target,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    name, port = target.split(":")
    assert f"127.0.0.1:{port}:{port}" in SERVICES[name]["ports"]
    assert "--config.file=/etc/alertmanager/alertmanager.yml" in SERVICES[name]["command"]
    assert "./deploy/alertmanager:/etc/alertmanager:ro" in SERVICES[name]["volumes"]


@pytest.mark.parametrize("name", ["cerberank", "cerberank-gpu"])
def test_the_service_may_write_nowhere_and_has_time_to_drain(name: str) -> None:
    """Read-only but for /tmp, no capabilities; killed only after the drain time and the servers' ends."""
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    needed = sum(Settings.model_fields[name].default for name in ("lame_duck_seconds", "drain_seconds"))
    assert int(service["stop_grace_period"].removesuffix("s")) >= needed + 3 * GRACE_SECONDS + 5


def test_clients_reach_the_service_by_the_proxy_alone() -> None:
    """Nginx asks the name and port that all replicas have; it publishes its own port, and they publish none."""
    (server,) = directive("server")
    host, port = server.split()[0].split(":")
    assert int(port) == Settings.model_fields["port"].default
    replicas = [name for name in SERVICES if name.startswith(host)]
    assert len(replicas) == 3
    assert not [name for name in replicas if "ports" in SERVICES[name]]
    assert {name for name in replicas if host != name} == {
        name for name in SERVICES if host in SERVICES[name].get("networks", {}).get("default", {}).get("aliases", ())
    }
    for service in (SERVICES[name] for name in replicas if host != name):  # asked for by its profile, with a GPU
        assert service["profiles"]
        assert service["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    (_, listen) = directive("listen")  # of count.conf, which is not published, and of listen.conf
    assert SERVICES["proxy"]["ports"] == [f"127.0.0.1:{port}:{listen.split()[0]}"]
    assert "profiles" not in SERVICES["proxy"]


def test_every_port_is_published_on_this_machine_alone() -> None:
    """Docker's own rules come before a firewall's: without an address a port is open to the network."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert not [port for port in ports if not port.startswith("127.0.0.1:")]


def test_the_admin_port_is_nobody_s() -> None:
    """It needs a token, listens within the container alone, and is not published."""
    port = str(Settings.model_fields["admin_port"].default)
    for service in SERVICES.values():
        assert not [published for published in service.get("ports", ()) if port in published]
    assert SERVICES["cerberank"]["environment"]["CERBERANK_ADMIN_TOKEN"] == "${CERBERANK_ADMIN_TOKEN:-}"

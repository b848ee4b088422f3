from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from starlette.testclient import TestClient
from tests.ray_cluster import settings_of_the_cluster
from tests.service.observe import service_of
from tools.process import installed

from cerberank_service.ray_serve.autoscaling import OFFERED_UTILISATION
from cerberank_service.settings import Settings
from cerberank_service.telemetry.series import OFFERED_SECONDS

pytest.importorskip("ray.serve", reason="needs the extra ray-serve", exc_type=ImportError)

ROOT = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "ray" / "cerberank.yaml").read_text())
(DEPLOYMENT,) = CONFIG["applications"][0]["deployments"]


def test_ray_serve_accepts_the_configuration() -> None:
    """By Ray's own schema; the policy is imported and made with its arguments."""
    from ray.serve.config import AutoscalingConfig
    from ray.serve.schema import ServeDeploySchema

    ServeDeploySchema.model_validate(CONFIG)
    policy = AutoscalingConfig(**DEPLOYMENT["autoscaling_config"]).policy
    assert policy.get_policy()(**policy.policy_kwargs) is not None


def test_the_deployment_is_the_one_that_the_application_has() -> None:
    """A name that is not there would be ignored until the cluster refuses it."""
    from cerberank_service.ray_serve.replica import application

    assert CONFIG["applications"][0]["import_path"] == "cerberank_service.ray_serve.replica:application"
    assert application._bound_deployment.name == DEPLOYMENT["name"]


def test_the_scaling_is_that_of_kubernetes() -> None:
    """One target for both: the utilisation, and the least number of replicas that holds the objective at it."""
    (scaler,) = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "base" / "autoscaler.yaml").read_text())
    target = scaler["spec"]["metrics"][0]["pods"]["target"]["averageValue"]
    scaling = DEPLOYMENT["autoscaling_config"]
    assert int(target.removesuffix("m")) == 1000 * scaling["policy"]["policy_kwargs"]["utilisation"]
    assert scaler["spec"]["minReplicas"] == scaling["min_replicas"]


def test_a_replica_reports_what_it_was_offered(monkeypatch: pytest.MonkeyPatch, client: TestClient) -> None:
    """The seconds of accepted and of refused questions, per second since the report before."""
    from cerberank_service.ray_serve import replica

    monkeypatch.setattr(replica, "assemble", lambda _: client.app)
    monkeypatch.setattr(replica.ray, "get_runtime_context", lambda: SimpleNamespace(get_assigned_resources=dict))
    now = iter([0.0, 8.0, 10.0])
    monkeypatch.setattr(replica, "time", SimpleNamespace(monotonic=lambda: next(now)))
    reporting = replica.Cerberank()
    offered = service_of(client).metrics[OFFERED_SECONDS]
    offered.labels("accepted").inc(2.0)
    offered.labels("refused").inc(6.0)
    reports = [reporting.record_autoscaling_stats() for _ in range(2)]
    assert [report[OFFERED_UTILISATION] for report in reports] == [1.0, 0.0]


def test_every_variable_is_one_that_somebody_reads() -> None:
    """Our variables are settings; Ray's are constants of Ray Serve."""
    from ray.serve._private import constants

    ours = DEPLOYMENT["ray_actor_options"]["runtime_env"]["env_vars"]
    assert {name.removeprefix("CERBERANK_").lower() for name in ours} <= set(Settings.model_fields)
    for name in settings_of_the_cluster():
        assert hasattr(constants, name), name


def test_the_example_for_kuberay_is_the_same_service(no_settings: None) -> None:
    """The configuration and the cluster's variables are those of deploy/ray; a worker pod has room for one replica."""
    file = ROOT / "deploy" / "kubernetes" / "ray-service.yaml"
    service, monitor, policy = yaml.safe_load_all(file.read_text())
    kubernetes_validate.validate(policy, kubernetes_validate.latest_version(), strict=True)
    assert yaml.safe_load(service["spec"]["serveConfigV2"]) == CONFIG
    cluster = service["spec"]["rayClusterConfig"]
    (group,) = cluster["workerGroupSpecs"]
    scaling = DEPLOYMENT["autoscaling_config"]
    assert (group["minReplicas"], group["maxReplicas"]) == (scaling["min_replicas"], scaling["max_replicas"])
    assert int(group["rayStartParams"]["num-cpus"]) == DEPLOYMENT["ray_actor_options"]["num_cpus"]
    for pod in (cluster["headGroupSpec"], group):
        (container,) = pod["template"]["spec"]["containers"]
        assert {each["name"]: each["value"] for each in container["env"]} == settings_of_the_cluster()
    (port,) = container["ports"]
    assert port["name"] == monitor["spec"]["podMetricsEndpoints"][0]["port"]
    assert monitor["spec"]["selector"]["matchLabels"] == group["template"]["metadata"]["labels"]

    from ray.serve._private import constants

    assert port["containerPort"] == constants.RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT


def test_prometheus_finds_the_replicas_of_a_machine() -> None:
    """Each listener on a port of Ray's replicas is a target, once, and nothing else is."""
    installed("ss", "iproute2")
    with socket.socket() as replica, socket.socket() as other:
        replica.bind(("127.0.0.1", free_port_of_a_replica()))
        other.bind(("127.0.0.1", 0))
        for listener in (replica, other):
            listener.listen()
        command = ["sh", str(ROOT / "deploy" / "ray" / "targets.sh"), "10.0.0.1"]
        (group,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        assert f"10.0.0.1:{replica.getsockname()[1]}" in group["targets"]
        assert f"10.0.0.1:{other.getsockname()[1]}" not in group["targets"]
        assert len(set(group["targets"])) == len(group["targets"])


def free_port_of_a_replica() -> int:
    """A port among those that Ray gives to replicas."""
    for port in range(30_500, 31_000):
        with socket.socket() as free:
            if free.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no free port")

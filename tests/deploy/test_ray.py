from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient
from tests.e2e.ray_cluster import settings_of_the_cluster

from cerberank_service.ray_serve.autoscaling import OFFERED_UTILISATION
from cerberank_service.settings import Settings

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
    offered = client.app.state.service.metrics.families.offered_seconds  # type: ignore[attr-defined]
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

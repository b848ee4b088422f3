from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.ray_cluster import settings_of_the_cluster

from cerberank_service.settings import Settings

pytest.importorskip("ray.serve", reason="needs the extra ray-serve", exc_type=ImportError)

CONFIG: dict[str, Any] = yaml.safe_load(
    (Path(__file__).resolve().parents[2] / "deploy" / "ray" / "cerberank.yaml").read_text()
)
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


def test_every_variable_is_one_that_somebody_reads() -> None:
    """Our variables are settings; Ray's are constants of Ray Serve."""
    from ray.serve._private import constants

    ours = DEPLOYMENT["ray_actor_options"]["runtime_env"]["env_vars"]
    assert {name.removeprefix("CERBERANK_").lower() for name in ours} <= set(Settings.model_fields)
    for name in settings_of_the_cluster():
        assert hasattr(constants, name), name

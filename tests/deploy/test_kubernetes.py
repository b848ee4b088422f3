from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from starlette.testclient import TestClient

from cerberank_service.settings import Settings
from cerberank_service.telemetry.series import PREFIX, SERIES

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FOLDER = DEPLOY / "kubernetes"
LABELS = {"app.kubernetes.io/name": "cerberank"}
STEP_SECONDS = 5
"""What uvicorn may take beyond the drain time: `serve.GRACE_SECONDS`."""


def render(folder: Path) -> dict[str, dict[str, Any]]:
    """The objects of a kustomization, by kind; there is one of each."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("needs kubectl, for its kustomize")
    result = subprocess.run([program, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    objects = list(yaml.safe_load_all(result.stdout))
    by_kind = {each["kind"]: each for each in objects}
    assert len(by_kind) == len(objects)
    return by_kind


@pytest.fixture(params=["base", "gpu"])
def objects(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    return render(FOLDER / request.param)


def pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return spec


def container(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (only,) = pod(objects)["containers"]
    assert isinstance(only, dict)
    return only


def test_every_object_fits_its_published_schema(objects: dict[str, dict[str, Any]]) -> None:
    """Strictly: an unknown field, which a cluster would drop, is an error."""
    assert set(objects) >= {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy"}
    for each in objects.values():
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_every_selector_selects_the_pods_and_nothing_else(objects: dict[str, dict[str, Any]]) -> None:
    """Every selector matches the pods; an empty one would match all pods of the namespace."""
    spread = pod(objects)["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
    selectors = [
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["Deployment"]["spec"]["template"]["metadata"]["labels"],
        objects["Service"]["spec"]["selector"],
        objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        spread,
    ]
    assert selectors == [LABELS] * len(selectors)
    assert objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "cerberank"


def test_settings_exist_and_hold_usable_values(
    objects: dict[str, dict[str, Any]], no_settings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service can read every setting, so that none is mistyped without effect."""
    data = objects["ConfigMap"]["data"]
    names = {f"CERBERANK_{name.upper()}" for name in Settings.model_fields}
    assert set(data) <= names
    for name, value in data.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.host == "0.0.0.0"
    assert settings.port == container(objects)["ports"][0]["containerPort"]
    assert settings.threads == int(container(objects)["resources"]["requests"]["cpu"])


def test_probes_ask_paths_that_answer(objects: dict[str, dict[str, Any]], client: TestClient) -> None:
    """By the port's name, which service and network policy use too."""
    port = container(objects)["ports"][0]["name"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        request = container(objects)[probe]["httpGet"]
        assert request["port"] == port
        assert client.get(request["path"]).status_code == 200
    assert objects["Service"]["spec"]["ports"][0]["targetPort"] == port
    assert objects["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"] == port


def test_the_admin_port_does_not_leave_the_pod(objects: dict[str, dict[str, Any]]) -> None:
    """It listens on 127.0.0.1, and no container port, service or network policy names it; its token is a secret."""
    assert Settings.model_fields["admin_host"].default == "127.0.0.1"
    assert not {name for name in objects["ConfigMap"]["data"] if "ADMIN" in name}
    assert str(Settings.model_fields["admin_port"].default) not in yaml.safe_dump(objects)
    assert {"name": "cerberank", "optional": True} in [
        source.get("secretRef") for source in container(objects)["envFrom"]
    ]


def test_a_pod_has_time_to_answer_what_it_accepted(objects: dict[str, dict[str, Any]]) -> None:
    """The pause before SIGTERM, the drain time and the answers on their way out fit into the grace period."""
    pause = int(container(objects)["lifecycle"]["preStop"]["exec"]["command"][1])
    needed = pause + Settings.model_fields["drain_seconds"].default + STEP_SECONDS
    assert pod(objects)["terminationGracePeriodSeconds"] > needed


def test_a_pod_may_do_no_more_than_it_must(objects: dict[str, dict[str, Any]]) -> None:
    """The image's user, a read-only root, no capabilities, no token, no outgoing traffic."""
    dockerfile = (DEPLOY.parent / "Dockerfile").read_text()
    assert f"--uid {pod(objects)['securityContext']['runAsUser']}" in dockerfile
    assert pod(objects)["securityContext"]["runAsNonRoot"]
    assert not pod(objects)["automountServiceAccountToken"]
    rights = container(objects)["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert not rights["allowPrivilegeEscalation"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert objects["NetworkPolicy"]["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert objects["NetworkPolicy"]["spec"]["egress"] == []


def test_the_autoscaler_s_metric_is_the_mean_queue(objects: dict[str, dict[str, Any]]) -> None:
    """From the gauge through the adapter to the autoscaler, by name; not the moment of one scrape counts."""
    (rule,) = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    assert rule["seriesQuery"].partition("{")[0] in {PREFIX + series.name for series in SERIES}
    assert "avg_over_time(<<.Series>>{<<.LabelMatchers>>}[2m])" in rule["metricsQuery"]
    scaler = objects["HorizontalPodAutoscaler"]["spec"]
    (metric,) = scaler["metrics"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
    assert scaler["behavior"]["scaleUp"]["stabilizationWindowSeconds"] >= 30


def test_the_gpu_variant_asks_for_one_and_changes_nothing_else() -> None:
    """One GPU, its own image, and the same restrictions as in the base."""
    base, gpu = render(FOLDER / "base"), render(FOLDER / "gpu")
    assert container(gpu)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container(gpu)["image"] != container(base)["image"]
    for kind in ("Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy"):
        assert gpu[kind] == base[kind]
    for name in ("readinessProbe", "lifecycle", "securityContext"):
        assert container(gpu)[name] == container(base)[name]


def test_the_monitor_can_be_added(tmp_path: Path) -> None:
    """As a component of somebody's own kustomization; it selects the service and its port."""
    for name in ("base", "service-monitor"):
        shutil.copytree(FOLDER / name, tmp_path / name)
    (tmp_path / "mine").mkdir()
    mine = {"resources": ["../base"], "components": ["../service-monitor"], "namespace": "ranking"}
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    objects = render(tmp_path / "mine")
    spec = objects["ServiceMonitor"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= objects["Service"]["metadata"]["labels"].items()
    assert spec["endpoints"][0]["port"] == objects["Service"]["spec"]["ports"][0]["name"]
    assert {each["metadata"]["namespace"] for each in objects.values()} == {"ranking"}

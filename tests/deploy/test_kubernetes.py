from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from starlette.testclient import TestClient
from tools.process import installed

from cerberank_service.engine.waiting_states import LEAST_STATE_BYTES
from cerberank_service.http.body import UNCOUNTED_BYTES
from cerberank_service.serve import ADMIN_HOST, GRACE_SECONDS
from cerberank_service.settings import Settings, fields
from cerberank_service.telemetry.series import OFFERED_SECONDS, PREFIX

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FOLDER = DEPLOY / "kubernetes"
LABELS = {"app.kubernetes.io/name": "cerberank"}


@cache
def render(folder: Path, *, one_of_each: bool = True) -> dict[str, dict[str, Any]]:
    """The objects of a kustomization by kind, or by kind and name where there may be several ConfigMaps."""
    result = subprocess.run(
        [installed("kubectl", "kubectl"), "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    objects = list(yaml.safe_load_all(result.stdout))
    several = set() if one_of_each else {"ConfigMap"}
    by_kind = {" ".join(key_of(each, several)): each for each in objects}
    assert len(by_kind) == len(objects)
    return by_kind


def key_of(each: dict[str, Any], several: set[str]) -> list[str]:
    """Its kind, and its name if there may be several of the kind."""
    return [each["kind"], each["metadata"]["name"]] if each["kind"] in several else [each["kind"]]


@pytest.fixture(params=["base", "store", "store-s3", "gpu"])
def objects(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    return render(FOLDER / request.param)


def pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return objects["Deployment"]["spec"]["template"]["spec"]


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
    if settings.device == "cpu":
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
    assert ADMIN_HOST == "127.0.0.1"
    assert not {name for name in objects["ConfigMap"]["data"] if "ADMIN" in name}
    assert str(Settings.model_fields["admin_port"].default) not in yaml.safe_dump(objects)
    assert {"name": "cerberank", "optional": True} in [
        source.get("secretRef") for source in container(objects)["envFrom"]
    ]


def test_a_pod_has_time_to_answer_what_it_accepted(objects: dict[str, dict[str, Any]]) -> None:
    """The lame-duck time, the drain time and the servers' ends (`serve.run` waits three times) fit with a margin."""
    pause = float(objects["ConfigMap"]["data"]["CERBERANK_LAME_DUCK_SECONDS"])
    assert pause > 0
    needed = pause + Settings.model_fields["drain_seconds"].default + 3 * GRACE_SECONDS
    assert pod(objects)["terminationGracePeriodSeconds"] >= needed + 5


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


def test_no_pod_opens_connections_but_to_a_bucket() -> None:
    """Elsewhere none; for a bucket, names from the cluster's own servers, and HTTPS."""
    for name in ("base", "store", "gpu"):
        assert render(FOLDER / name)["NetworkPolicy"]["spec"]["egress"] == []
    names, bucket = render(FOLDER / "store-s3")["NetworkPolicy"]["spec"]["egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert names["to"]
    assert bucket["ports"] == [{"protocol": "TCP", "port": 443}]


def mebibytes(quantity: str) -> int:
    """The mebibytes of a quantity such as 768Mi or 2Gi."""
    number, unit = int(quantity[:-2]), quantity[-2:]
    return number * {"Mi": 1, "Gi": 1024}[unit]


@pytest.mark.parametrize(("name", "interpreters"), [("base", 400), ("store", 700), ("store-s3", 700)])
def test_what_the_settings_allow_fits_into_the_pod(name: str, interpreters: int, no_settings: None) -> None:
    """Versions, waiting states, bodies, cached tokens and the interpreters stay below the limit.

    Bodies count raw and decoded (four times as large): those of the common limit, and small ones, which it leaves out.

    An interpreter with its libraries and one version takes 250 to 320 MB (docs/reliability.md), a step's activations
    the rest; where versions are loaded, a second process may load one.
    """
    objects = render(FOLDER / name)
    data = {key.removeprefix("CERBERANK_").lower(): value for key, value in objects["ConfigMap"]["data"].items()}
    settings = Settings.model_validate(data)
    assert settings.model_memory_bytes > 0
    bodies = (1 + 4) * (16 * settings.max_body_bytes + settings.max_requests * UNCOUNTED_BYTES)
    parts = (settings.model_memory_bytes, LEAST_STATE_BYTES, bodies, settings.token_cache_bytes)
    limit = mebibytes(container(objects)["resources"]["limits"]["memory"])
    assert sum(parts) // 2**20 + interpreters < limit


@pytest.mark.parametrize("name", ["store", "store-s3"])
def test_the_copies_of_versions_have_room(name: str) -> None:
    """/tmp holds twice what versions take in memory, and the node must have that much."""
    objects = render(FOLDER / name)
    (tmp,) = [volume for volume in pod(objects)["volumes"] if volume["name"] == "tmp"]
    room = mebibytes(tmp["emptyDir"]["sizeLimit"])
    assert room * 2**20 >= 2 * int(objects["ConfigMap"]["data"]["CERBERANK_MODEL_MEMORY_BYTES"])
    assert mebibytes(container(objects)["resources"]["requests"]["ephemeral-storage"]) == room


def test_the_autoscaler_s_metric_is_the_offered_seconds(objects: dict[str, dict[str, Any]]) -> None:
    """Refused ones too; from the counter through the adapter to the autoscaler, by name, as a rate."""
    (rule,) = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    assert rule["seriesQuery"].partition("{")[0] == f"{PREFIX}{OFFERED_SECONDS.name}_total"
    assert (
        rule["metricsQuery"] == "sum by (<<.GroupBy>>) (rate(<<.Series>>{<<.LabelMatchers>>}[2m]))"
    )  # of all outcomes
    scaler = objects["HorizontalPodAutoscaler"]["spec"]
    (metric,) = scaler["metrics"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
    assert scaler["behavior"]["scaleUp"]["stabilizationWindowSeconds"] >= 30


def test_the_gpu_variant_asks_for_one_and_what_feeds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One GPU, its own image, processors for as many encoding threads, and otherwise what the overlay with a store has.

    The base's number of threads is the model's on processors.
    """
    base, gpu = render(FOLDER / "store"), render(FOLDER / "gpu")
    assert container(gpu)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container(gpu)["image"] != container(base)["image"]
    data = gpu["ConfigMap"]["data"]
    monkeypatch.setattr(fields, "usable_processors", lambda: 64)
    workers = Settings.model_validate({"device": data["CERBERANK_DEVICE"]}).encode_workers
    assert container(gpu)["resources"]["requests"]["cpu"] == str(workers)
    assert "CERBERANK_THREADS" in base["ConfigMap"]["data"].keys() - data.keys()
    for kind in ("Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy"):
        assert gpu[kind] == base[kind]
    for name in ("readinessProbe", "securityContext"):
        assert container(gpu)[name] == container(base)[name]


@pytest.fixture
def composed(tmp_path: Path) -> Callable[..., dict[str, dict[str, Any]]]:
    """Renders somebody's own kustomization of the base in a namespace, with these components."""

    def compose(*components: str) -> dict[str, dict[str, Any]]:
        shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
        mine = tmp_path / "deploy" / "kubernetes" / "mine"
        mine.mkdir()
        content = {"resources": ["../base"], "components": list(components), "namespace": "ranking"}
        (mine / "kustomization.yaml").write_text(yaml.safe_dump(content))
        return render(mine, one_of_each=False)

    return compose


def test_monitoring_can_be_added(composed: Callable[..., dict[str, dict[str, Any]]]) -> None:
    """The monitor selects the service and its port; the rules are Prometheus' own, the dashboard Grafana's."""
    objects = composed("../prometheus-operator", "../../grafana")
    spec = objects["ServiceMonitor"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= objects["Service"]["metadata"]["labels"].items()
    assert spec["endpoints"][0]["port"] == objects["Service"]["spec"]["ports"][0]["name"]
    assert {each["metadata"]["namespace"] for each in objects.values()} == {"ranking"}
    files = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
    groups = [group for path in files for group in yaml.safe_load(path.read_text())["groups"]]
    assert objects["PrometheusRule"]["spec"]["groups"] == groups
    dashboard = objects["ConfigMap cerberank-dashboard"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["data"]["cerberank.json"] == (DEPLOY / "grafana/dashboards/cerberank.json").read_text()


def test_keda_scales_as_the_autoscaler_does(composed: Callable[..., dict[str, dict[str, Any]]]) -> None:
    """It takes the autoscaler's place, with its target, its bounds and its pace."""
    objects = composed("../keda")
    assert "HorizontalPodAutoscaler" not in objects
    scaler = render(FOLDER / "base")["HorizontalPodAutoscaler"]["spec"]
    spec = objects["ScaledObject"]["spec"]
    assert spec["scaleTargetRef"]["name"] == scaler["scaleTargetRef"]["name"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (scaler["minReplicas"], scaler["maxReplicas"])
    assert spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == scaler["behavior"]
    (trigger,) = spec["triggers"]
    target = scaler["metrics"][0]["pods"]["target"]
    assert trigger["metricType"] == target["type"]
    assert f"{1000 * float(trigger['metadata']['threshold']):.0f}m" == target["averageValue"]
    adapter = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())["rules"]["custom"][0]
    counter = adapter["seriesQuery"].partition("{")[0]
    assert f"rate({counter}{{" in trigger["metadata"]["query"]
    assert "[2m]" in trigger["metadata"]["query"]


def test_tls_reaches_probes_service_and_monitor(composed: Callable[..., dict[str, dict[str, Any]]]) -> None:
    """Every probe asks by HTTPS; certificate and key lie where the settings look, readable for the pod's group."""
    objects = composed("../prometheus-operator", "../tls")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container(objects)[probe]["httpGet"]["scheme"] == "HTTPS"
        assert container(objects)[probe]["httpGet"]["path"].startswith("/health/")
    (mount,) = [each for each in container(objects)["volumeMounts"] if each["name"] == "tls"]
    (config,) = [each for name, each in objects.items() if name.startswith("ConfigMap")]
    for name in ("CERBERANK_TLS_CERTIFICATE", "CERBERANK_TLS_KEY"):
        assert Path(config["data"][name]).parent == Path(mount["mountPath"])
    (volume,) = [each for each in pod(objects)["volumes"] if each["name"] == "tls"]
    assert volume["secret"] == {"secretName": "cerberank-tls", "defaultMode": 0o440}
    (port,) = objects["Service"]["spec"]["ports"]
    assert (port["name"], port["port"], port["appProtocol"]) == ("http", 443, "https")
    assert objects["ServiceMonitor"]["spec"]["endpoints"][0]["scheme"] == "https"


def test_keys_lie_where_the_setting_looks(composed: Callable[..., dict[str, dict[str, Any]]]) -> None:
    """As a mounted folder, in which a changed secret appears; beside TLS, which patches the same objects."""
    objects = composed("../keys", "../tls")
    (mount,) = [each for each in container(objects)["volumeMounts"] if each["name"] == "keys"]
    assert "subPath" not in mount
    (config,) = [each for name, each in objects.items() if name.startswith("ConfigMap")]
    assert Path(config["data"]["CERBERANK_KEYS_FILE"]) == Path(mount["mountPath"], "keys.json")
    (volume,) = [each for each in pod(objects)["volumes"] if each["name"] == "keys"]
    assert volume["secret"] == {"secretName": "cerberank-keys", "defaultMode": 0o440}


def test_every_name_of_a_cluster_s_variables_is_left_out(objects: dict[str, dict[str, Any]]) -> None:
    """A service called cerberank would make CERBERANK_PORT=tcp://... of itself in every pod."""
    assert pod(objects)["enableServiceLinks"] is False

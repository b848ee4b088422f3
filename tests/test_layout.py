"""The shape of the source: a test beside each module, small folders, small files."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "models/cerberank_models": "models",
    "service/cerberank_service": "service",
    "training/cerberank_training": "training",
    "training/cerberank_benchmarks": "benchmarks",
}
"""Each package, and the folder of its tests."""
MOST_MODULES, MOST_LINES = 15, 300
ELSEWHERE = {
    "models/test_cli.py": [
        *(f"{place}/verbs" for place in ("models", "models/commands", "service", "training/commands", "benchmarks")),
        "models/__main__",
    ],
    "models/backends/test_registry.py": [
        "models/backends/onnx_backend",
        *(f"models/backends/{name}" for name in ("torch_backend", "torch_stages")),
    ],
    "models/checkpoint/test_folder.py": ["models/checkpoint/manifest"],
    "models/checkpoint/store/test_contract.py": [
        f"models/checkpoint/store/{name}" for name in ("folder", "open", "url")
    ],
    "models/test_token_cache.py": ["models/generations"],
    "models/first_stage/test_attach.py": [
        *(f"models/checkpoint/{name}" for name in ("errors", "first_stage_files")),
        *(f"models/first_stage/{name}" for name in ("contract", "export", "golden", "onnx_encoder", "open")),
    ],
    "models/first_stage/test_rank.py": ["models/commands/embed"],
    "models/first_stage/test_sources.py": ["models/commands/first_stage"],
    "models/first_stage/embedding/test_store_texts.py": ["models/first_stage/embedding/shards"],
    "models/first_stage/test_torch_encoder.py": ["models/network/text_ranker/vectors"],
    "models/export/to_hugging_face/test_folder.py": [
        f"models/export/to_hugging_face/{name}" for name in ("configuration", "tokenizer_files", "weights")
    ],
    "models/importing/test_hugging_face.py": ["models/importing/families"],
    "models/network/bodies/test_pre_norm.py": [f"models/network/bodies/{name}" for name in ("contract", "merging")],
    "models/network/test_ranker.py": [f"models/network/{name}" for name in ("exits", "heads", "layout")],
    "e2e/test_bundled.py": ["models/checkpoint/bundled", "models/export/golden_texts"],
    "service/test_app.py": [
        *(f"service/http/{name}" for name in ("error_responses", "openapi", "plain_routes")),
        "service/service",
    ],
    "service/access/test_keys.py": ["service/access/keys_command"],
    "service/admin/test_app.py": ["service/admin/operations"],
    "service/dialects/test_native.py": ["service/call", "service/dialects/native_schema"],
    "service/dialects/open_inference/test_infer.py": ["service/http/open_inference_routes"],
    "service/engine/test_admission.py": ["service/engine/objective"],
    "service/http/test_batch_route.py": ["service/dialects/native_batch"],
    "service/http/test_rank_route.py": ["service/ranking/rank"],
    "service/ranking/test_score_cache.py": ["service/engine/known_scores"],
    "service/rollout/test_shadow.py": ["service/rollout/labels", "service/telemetry/shadow_metrics"],
    "service/telemetry/test_registration.py": ["service/telemetry/series"],
    "service/versions/test_loading.py": ["service/versions/single", "service/versions/warm_up"],
    "service/versions/test_watcher_rejects.py": ["service/versions/rejection"],
    "deploy/test_ray.py": ["service/ray_serve/replica"],
    "e2e/test_admin.py": [f"service/admin/{name}" for name in ("client", "command", "options")],
    "training/data/test_readers.py": [
        f"training/data/{name}" for name in ("asnq", "generic", "notes", "question", "squad", "wikiqa")
    ],
    "training/data/formats/test_tables.py": ["training/data/formats/columns", "training/data/formats/rows"],
    "training/data/formats/test_msmarco.py": ["training/data/formats/stored_lines"],
    "training/data/trec/test_collection.py": ["training/data/options"],
    "training/mining/test_command.py": ["training/data/corpus", "training/mining/miner", "training/mining/work"],
    "training/data/test_sampling.py": ["training/data/epochs"],
    "training/data/test_triple_sampling.py": ["training/data/triples"],
    "training/data/trec/test_documents.py": [
        f"training/data/trec/{name}" for name in ("judgements", "markup", "queries")
    ],
    "training/evaluation/test_evaluate.py": [
        *(f"training/evaluation/sources/{name}" for name in ("given_scores", "rankings")),
        "training/evaluation/report",
    ],
    "training/commands/test_evaluate.py": [f"training/commands/evaluation/{name}" for name in ("options", "sources")],
    "training/commands/evaluation/test_table.py": ["training/evaluation/systems/rendering"],
    "training/evaluation/test_gate.py": ["training/commands/export"],
    "training/evaluation/test_strategy_table.py": ["training/commands/strategies/cerberus_systems"],
    "training/commands/test_compare.py": ["training/commands/ensemble"],
    "training/commands/test_tune.py": ["training/evaluation/plots"],
    "training/commands/test_score.py": ["training/teachers/scoring/ray_engine"],
    "training/pretraining/test_run.py": ["training/learning/trainer_checkpoint"],
    "training/learning/pairwise/test_run.py": ["training/learning/pairwise/batch"],
    "training/learning/test_train.py": ["training/learning/attention", "training/learning/loop"],
    "training/learning/test_student_objective.py": ["training/learning/batch", "training/learning/strategies"],
    "training/tracking/test_opening.py": [
        f"training/tracking/{name}" for name in ("identity", "ml_flow", "tensor_board", "weights_and_biases")
    ],
    "training/tracking/test_tracking.py": ["training/tracking/log_file", "training/tracking/tracker"],
    "training/tracking/test_command.py": ["training/tracking/rows"],
    "training/runs/test_card.py": ["training/runs/software"],
    "training/students/test_average.py": ["training/commands/average"],
    "training/teachers/scoring/test_run.py": ["training/teachers/scoring/open", "training/teachers/scoring/teacher"],
    "e2e/test_evaluate.py": ["training/evaluation/sources/remote"],
    "e2e/test_training_chain.py": [
        *(f"training/commands/{name}" for name in ("sample",)),
        *(f"training/students/{name}" for name in ("calibration",)),
    ],
    "benchmarks/test_command.py": [
        *(f"benchmarks/{name}" for name in ("entry", "machine", "settings", "weights")),
        *(f"benchmarks/pieces/{name}" for name in ("anytime", "offline", "over_http", "overhead", "shapes")),
        "benchmarks/clients/server",
    ],
    "benchmarks/gpu/test_command.py": [
        *(f"benchmarks/gpu/{name}" for name in ("ceilings", "faults", "graphs", "kernel", "peers", "record", "scores")),
        *(f"benchmarks/gpu/{name}" for name in ("served", "stand_ins", "steps", "table5", "training")),
    ],
    "benchmarks/clients/test_open_loop.py": ["benchmarks/clients/traffic"],
    "service/settings/test_fields.py": [f"service/settings/{name}" for name in ("__main__", "limits", "values")],
    "service/settings/test_environment.py": ["service/settings/removed"],
    "test_docs.py": ["service/telemetry/metrics_table"],
    "models/backends/test_onnx_device_backend.py": ["models/export/forms"],
}
"""Modules without a test file of their own name, by the file that tests them: with others whose behaviour is one with
theirs, or through the verb or the process that is their only user."""


def modules() -> dict[str, Path]:
    """Every production module by the name that its tests would have: `service/engine/job`."""
    return {
        f"{tests}/{path.relative_to(ROOT / package).with_suffix('').as_posix()}": path
        for package, tests in PACKAGES.items()
        for path in (ROOT / package).rglob("*.py")
        if path.stem != "__init__"
    }


def mirror(module: str) -> Path:
    folder, _, name = module.rpartition("/")
    return ROOT / "tests" / folder / f"test_{name}.py"


def test_every_module_has_its_test() -> None:
    """A file of its name in the same place under `tests/`, or the one that ELSEWHERE names."""
    listed = {module for each in ELSEWHERE.values() for module in each}
    missing = {module for module in modules() if not mirror(module).is_file()}
    assert missing - listed == set(), "write a test, or say which one tests it"
    assert listed - missing == set(), "gone, or with a test of their own by now"
    assert [file for file in ELSEWHERE if not (ROOT / "tests" / file).is_file()] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_are_small(package: str) -> None:
    """Fifteen modules at most; then a folder holds two ideas."""
    root = ROOT / package
    counts: dict[str, int] = {}
    for path in root.rglob("*.py"):
        if path.stem != "__init__":
            folder = str(path.parent.relative_to(root))
            counts[folder] = counts.get(folder, 0) + 1
    assert counts
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_files_are_short() -> None:
    """Three hundred lines at most, tests as well; no file is excepted at present."""
    files = [path for folder in ("models", "service", "training", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 300
    assert [str(path.relative_to(ROOT)) for path in files if len(path.read_text().splitlines()) > MOST_LINES] == []

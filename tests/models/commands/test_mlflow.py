"""`cerberank store mlflow` against a real registry in SQLite: there, back, and twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cerberank.cli import main
from mlflow import MlflowClient

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.checkpoint.store.open import open_store

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:sqlalchemy", "ignore::DeprecationWarning:mlflow")
NAME = "random-tiny"


@pytest.fixture
def registry(mlflow_tables: Path, tmp_path: Path) -> MlflowClient:
    uri = f"sqlite:///{shutil.copy(mlflow_tables, tmp_path / 'mlflow.db')}"
    client = MlflowClient(uri, uri)
    client.create_experiment("cerberank", artifact_location=str(tmp_path / "artifacts"))
    return client


def call(direction: str, store: Path, registry: MlflowClient, *options: str) -> int:
    return main(["store", "mlflow", direction, NAME, str(store), "--registry", registry.tracking_uri, *options])


def test_versions_and_labels_go_there_and_back(
    registry: MlflowClient, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Registered once, with an alias of another name; another store then has the same version under the same label.

    Repeated, nothing is done, and a label that moves moves its alias alone.
    """
    first, second = tmp_path / "first", tmp_path / "second"
    store = open_store(str(first))
    pushed = store.push(read_checkpoint(tiny_checkpoint))
    store.move_label(NAME, "stable", pushed.version)
    champion = ("--alias", "champion=stable")
    assert call("to-registry", first, registry, *champion) == 0
    assert "is version 1 of the registry" in capsys.readouterr().out
    assert dict(registry.get_registered_model(NAME).aliases) == {"champion": 1}
    assert call("to-store", second, registry, *champion) == 0
    assert f"{NAME}@{pushed.version} is in the store" in capsys.readouterr().out
    other = open_store(str(second))
    assert (other.versions(NAME), other.labels(NAME)) == ((pushed.version,), {"stable": pushed.version})
    assert other.manifest(pushed) == store.manifest(pushed)
    for direction, place in (("to-registry", first), ("to-store", second)):
        assert call(direction, place, registry, *champion) == 0
        said = capsys.readouterr()
        assert said.out == ""
        assert "nothing was copied" in said.err
    store.move_label(NAME, "canary", pushed.version)
    assert call("to-registry", first, registry, *champion) == 0
    assert capsys.readouterr().out.startswith(f"canary of {NAME} is version 1")
    assert len(registry.search_model_versions(f"name='{NAME}'")) == 1


def test_a_checkpoint_that_others_registered(
    registry: MlflowClient, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without our tags, beside a version that holds something else; one that was changed is refused."""
    registry.create_registered_model(NAME)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.pkl").write_bytes(b"x")
    for folder in (tmp_path / "other", tiny_checkpoint):
        registry.create_model_version(NAME, str(folder))
    registry.set_registered_model_alias(NAME, "stable", "2")
    assert call("to-store", tmp_path / "store", registry) == 0
    assert f"{NAME} version 1 of the registry holds no checkpoint" in capsys.readouterr().out
    version = read_checkpoint(tiny_checkpoint).manifest.version
    assert open_store(str(tmp_path / "store")).labels(NAME) == {"stable": version}
    changed = tmp_path / "changed"
    revise_checkpoint(read_checkpoint(tiny_checkpoint), changed, version="3")
    (changed / "README.md").write_text("changed")
    registry.create_model_version(NAME, str(changed))
    assert call("to-store", tmp_path / "store", registry) == 1
    assert "\ncerberank store mlflow: " in capsys.readouterr().err


def test_a_checkpoint_of_another_name_is_refused(
    registry: MlflowClient, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its labels would be another model's; and a model that the store lacks has nothing to register."""
    registry.create_registered_model(NAME)
    own = read_checkpoint(tiny_checkpoint)
    revise_checkpoint(own, tmp_path / "c", version="1", config=own.config.model_copy(update={"name": "another"}))
    registry.create_model_version(NAME, str(tmp_path / "c"))
    assert call("to-store", tmp_path / "store", registry) == 1
    assert f"registered model {NAME} is a checkpoint of another" in capsys.readouterr().err
    assert call("to-registry", tmp_path / "store", registry) == 1
    assert f"the store has no model '{NAME}'" in capsys.readouterr().err

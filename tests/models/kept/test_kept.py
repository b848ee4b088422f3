"""Stores of earlier releases are read, as docs/upgrading.md promises."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.golden import check_golden
from cerberank_models.ranker import Ranker
from cerberank_models.store import Store

ARCHIVES = sorted(Path(__file__).parent.glob("store-*.tar.gz"))
WITH_OLD_CALIBRATION = ("store-0.1.0.tar.gz",)
TEXTS = ["it was built in paris", "bees make honey", "the tower is 1 8 9 metres tall", "who wrote carmen"]


def test_every_release_of_the_changelog_has_kept_a_store() -> None:
    changelog = (Path(__file__).parents[3] / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(\d[^\]]*)\]", changelog, re.MULTILINE)
    assert releases
    assert {path.name for path in ARCHIVES} >= {f"store-{release}.tar.gz" for release in releases}


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return Store(tmp_path / "store")


@pytest.fixture
def checkpoint(store: Store, tmp_path: Path) -> Checkpoint:
    store.pull("kept@stable", tmp_path / "pulled")
    return read_checkpoint(tmp_path / "pulled")


def test_versions_and_labels_are_listed(store: Store) -> None:
    (version,) = store.versions("kept")
    assert (store.models(), version.name, version.labels) == (("kept",), "kept@1", ("stable",))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_scores_are_those_of_the_release(checkpoint: Checkpoint, precision: str) -> None:
    check_golden(open_backend(checkpoint, precision=precision), checkpoint, precision)


def test_a_question_is_ranked_with_first_stage_schedule_and_calibration(
    checkpoint: Checkpoint, request: pytest.FixtureRequest
) -> None:
    """A calibration of an earlier format is left out, and every answer says so."""
    ranker = Ranker.load(checkpoint.path)
    ranking = ranker.rank("how tall is the tower ?", TEXTS)
    assert ranking.complete
    assert sorted(result.index for result in ranking) == [0, 1, 2, 3]
    assert {result.stage for result in ranking} == {0, 1, 2, 3}
    outdated = request.node.callspec.params["store"].name in WITH_OLD_CALIBRATION
    assert (ranking.answerable is None) == outdated
    assert any("checkpoint calibrate` makes a new one" in warning for warning in ranking.warnings) == outdated
    assert checkpoint.config.languages == ("en",)

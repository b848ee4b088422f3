"""A store whose models cannot all be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.models.stores import DAMAGES, Objects, damage
from tests.service.pushes import version_at

from cerberank_models.checkpoint.store.checkpoint_store import CheckpointStore
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_models.checkpoint.store.url_store import UrlStore
from cerberank_service.settings import Settings
from cerberank_service.versions.store_view import StoreView


@pytest.fixture(params=["folder", "url"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    """A store of either kind in `tmp_path / "store"` with the models `good` and `evil`, whose version 2 is stable."""
    root = tmp_path / "store"
    store: CheckpointStore = FolderStore(root) if request.param == "folder" else UrlStore(Objects(), str(root))
    for name in ("good", "evil"):
        for version in ("1", "2"):
            store.push(version_at(tmp_path / "made", version, name=name))
        store.move_label(name, "stable", "2")
    return store


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_model_that_cannot_be_read_leaves_the_others_alone(
    both: CheckpointStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A view that knew the model keeps its labels; a new one takes what is whole. The log has each problem once."""
    known, new = StoreView(both, Settings()), StoreView(both, Settings())
    assert known.read([], ())["evil"].labels == {"stable": "2"}
    damage(tmp_path / "store" / "evil", kind)
    both.move_label("good", "stable", "1")
    for view in (known, new):
        caplog.clear()
        stored = [view.read([], ()), view.read([], ())][-1]
        assert stored["good"].labels == {"stable": "1"}
        assert stored["good"].sizes["1"] > 0
        assert len(caplog.records) == len(view.problems)
        if view is known or not kind.startswith("labels"):
            assert stored["evil"].labels == {"stable": "2"}
        if kind.startswith("labels"):
            assert view.problems[0].startswith("the labels of evil cannot be read: ")
    assert "evil" not in stored or not stored["evil"].sizes.get("2")  # 0: loading it says what is wrong

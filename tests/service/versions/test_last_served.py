"""A rejected push and a restart: the service still answers, and says what it serves instead of what."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.service.following import Follow, entry, served_by
from tests.service.observe import samples, wait_until
from tests.service.pushes import push

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore

Make = Callable[..., Checkpoint]
DIFFERS = "cerberank_label_wanted_differs{label=stable,model=fake-ranker}"


def test_a_replica_that_starts_after_a_rejected_push_serves_the_last_good_version(
    follow: Follow, store: FolderStore, made: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """It is ready, /v1/models, a metric and the log tell the difference, and a good push is served as usual."""
    push(store, made("1"), "stable")
    first = follow()
    wait_until(lambda: store.record("fake-ranker").served == ("1",))
    push(store, made("2", golden_shift=0.5), "stable")
    wait_until(lambda: entry(first, "2").get("state") == "failed")
    caplog.clear()
    started = follow()
    wait_until(lambda: served_by(started) == "1")
    assert "fake-ranker@1 stands in for 2, which" in caplog.text
    assert "label moved" not in caplog.text
    wait_until(lambda: started.get("/health/ready").status_code == 200)
    for replica in (first, started):
        assert served_by(replica) == "1"
        assert (entry(replica, "1")["labels"], entry(replica, "1")["wanted"]) == (["stable"], [])
        assert (entry(replica, "2")["labels"], entry(replica, "2")["wanted"]) == ([], ["stable"])
        assert samples(replica)[DIFFERS] == 1
    push(store, made("3"), "stable")
    wait_until(lambda: served_by(started) == served_by(first) == "3")
    assert samples(started)[DIFFERS] == 0
    wait_until(lambda: store.record("fake-ranker").served == ("3", "1"))

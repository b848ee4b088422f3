"""`cerberank serve MODEL`: a model that transformers has written is imported once and then served."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from sentence_transformers import CrossEncoder
from tests.models.convert.test_source import COMMIT, in_hub_cache
from tests.tiny import save_cross_encoder
from tools.process import SERVE, launch, serving

IMPORT_SECONDS = 300.0
"""It takes ten seconds on an idle machine: two processes import torch and transformers."""
TEXTS = ["it was built in paris .", "330 metres", "bees make honey", "how tall is the tower ? " * 20]
QUESTION = "how tall is the tower ? " * 12


def ask(model: str, log: Path, name: str, **settings: str) -> list[float]:
    """Start the service on `model`, ask for `name` once it is ready, and end it; the scores by candidate."""
    with serving(Path(), log, program=(*SERVE, model), CERBERANK_CHECKPOINT="", **settings) as running:
        (model,) = httpx.get(f"{running.url}/v1/models").json()["models"]
        assert (model["model"], model["version"]) == ("tiny", COMMIT[:12])
        body = {"model": name, "question": QUESTION, "candidates": TEXTS, "windows": "off"}
        results = httpx.post(f"{running.url}/v1/rank", json=body).raise_for_status().json()["results"]
    return [result["score"] for result in sorted(results, key=lambda result: result["index"])]


def test_a_model_is_imported_once_and_answers_as_before(tmp_path: Path) -> None:
    """By its id, from the hub's cache alone, its version the commit; the second start imports nothing. Scores are
    CrossEncoder's, in fp32.
    """
    snapshot = in_hub_cache("someone/tiny", tmp_path / "hf")
    folder = save_cross_encoder("bert", snapshot, num_labels=1, num_hidden_layers=2)
    places = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = ask("someone/tiny", tmp_path / "first.log", "someone/tiny", **places)
    again = ask("someone/tiny", tmp_path / "again.log", "tiny", **places)
    wanted = CrossEncoder(str(folder), device="cpu").predict([(QUESTION, text) for text in TEXTS])
    assert first == pytest.approx(wanted.tolist(), abs=1e-5)
    assert again == first
    assert "tiny is being imported; this takes up to some minutes" in (tmp_path / "first.log").read_text()
    log = (tmp_path / "again.log").read_text()
    assert "is being imported" not in log
    assert "someone/tiny is loaded from" in log


@pytest.mark.skipif(not Path("/proc/self/cmdline").is_file(), reason="needs Linux's list of processes")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_ends_the_import_as_well(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """While a model is imported: its process ends itself when the service has ended."""
    folder, log, cache = save_cross_encoder("bert", tmp_path / "model"), tmp_path / "log", tmp_path / "cache"
    process = launch(Path(), log, program=(*SERVE, str(folder)), CERBERANK_CHECKPOINT="", XDG_CACHE_HOME=str(cache))
    end = time.monotonic() + IMPORT_SECONDS
    while len(named(folder)) < 2 and time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(IMPORT_SECONDS) == code
    assert_no_import_is_left(folder, cache)


def assert_no_import_is_left(folder: Path, cache: Path) -> None:
    """No process, and no checkpoint: one that went on would have made it. Python may be loading libraries still."""
    end = time.monotonic() + IMPORT_SECONDS
    while named(folder) and time.monotonic() < end:
        time.sleep(0.1)
    assert named(folder) == []
    assert not list(cache.glob("**/config.json"))


def named(folder: Path) -> list[Path]:
    """The processes on whose command lines the model's path stands: the service and its import."""
    processes = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            if str(folder).encode() in line.read_bytes():
                processes.append(line.parent)
    return processes


def test_a_model_that_cannot_be_imported_ends_the_program(tmp_path: Path) -> None:
    """Exit code 2; the import's own reason is the last line, and nothing is kept.

    The reason is the extra that is missing: the service itself runs without transformers.
    """
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "transformers.py").write_text("raise ModuleNotFoundError(name='transformers')\n")
    (tmp_path / "config.json").write_text("{}")
    environment = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "hidden"), os.environ.get("PYTHONPATH", "")]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CERBERANK_CHECKPOINT": "",
    }
    process = launch(Path(), tmp_path / "log", program=(*SERVE, str(tmp_path)), **environment)
    assert process.wait(IMPORT_SECONDS) == 2
    log = (tmp_path / "log").read_text()
    last = log.splitlines()[-1]
    assert last.startswith(f"cerberank serve: {tmp_path} was not imported: ")
    assert last.endswith("run in the checkout: pip install '.[import]'")
    assert not [item for item in (tmp_path / "cache" / "cerberank").iterdir() if item.is_dir()]

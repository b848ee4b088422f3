"""The examples of the pages on the API are run against the bundled checkpoint, and every answer is compared."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tools.api_examples import COMMAND_AND_ANSWER, DOCUMENTED, PAGES, run
from tools.process import Process, installed, serving

from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_service.dialects import DIALECTS

TEXT = "\n".join(page.read_text() for page in PAGES)
COMMANDS = COMMAND_AND_ANSWER.findall(TEXT)
PROGRAMS = re.findall(r"```python\n(?!import voyageai)(.*?)```", TEXT, re.DOTALL)
"""Voyage's brings too much for the development lock: `tests/clients/voyageai` runs it."""
OTHERWISE_EACH_TIME = {"id", "request_id", "timing_ms", "created"}
TOLERANCE = 0.03
"""int8 on another processor."""
LOGIT_TOLERANCE = 1.0
"""The same far from .5, where .01 of a probability are several tenths of its log-odds."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(default_checkpoint(), tmp_path_factory.mktemp("served") / "log") as running:
        yield running


def same(answer: Any, documented: Any, tolerance: float = TOLERANCE) -> bool:
    """Equality up to small numerical differences and fields that differ each time."""
    if isinstance(documented, dict):
        return set(answer) == set(documented) and all(
            name in OTHERWISE_EACH_TIME
            or same(answer[name], documented[name], LOGIT_TOLERANCE if name == "logit" else TOLERANCE)
            for name in documented
        )
    if isinstance(documented, list):
        return len(answer) == len(documented) and all(map(same, answer, documented))
    if isinstance(documented, float):
        return bool(answer == pytest.approx(documented, abs=tolerance))
    return bool(answer == documented)


@pytest.mark.parametrize(("command", "documented"), COMMANDS, ids=[command.split()[2] for command, _ in COMMANDS])
def test_a_command_answers_what_the_page_shows(command: str, documented: str, served: Process) -> None:
    """Word for word, but for the port; after another checkpoint was bundled: `python -m tools.api_examples`."""
    installed("curl", "curl")
    answer = run(command, served)
    assert same(answer, json.loads(documented)), json.dumps(answer, indent=1)


@pytest.mark.parametrize(
    "program", PROGRAMS, ids=lambda program: re.findall(r"^import (\w+)", program, re.MULTILINE)[-1]
)
def test_a_program_finds_the_best(program: str, served: Process) -> None:
    """The page's programs find the documented `best` with the vendors' own clients."""
    address = DOCUMENTED.removeprefix("http://")
    program = program.replace(address, served.url.removeprefix("http://"))
    printed = subprocess.run(
        [sys.executable, "-c", f"{program}\nprint(best)"], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == re.findall(r"# (\d+)$", program, re.MULTILINE)[0]


def test_every_dialect_has_its_example() -> None:
    """Every dialect, and the protocol with the model's name in its paths, has an example."""
    paths = {re.findall(rf"{DOCUMENTED}(\S+)", command)[0] for command, _ in COMMANDS}
    assert "/v2/models/cerberank-mini/infer" in paths
    for dialect in DIALECTS:
        assert paths & set(dialect.paths) or all(f"`{path}`" in TEXT for path in dialect.paths), dialect.summary

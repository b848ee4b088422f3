"""The copying process beside the one that started it; `test_copies` has what it copies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

SCRIPT = """
import os, sys, time
from cerberank_service.versions import copy_process
def opened(address):
    {body}
copy_process.open_store = opened
sys.exit(copy_process.main(sys.argv[1:]))
"""


@contextmanager
def copying(body: str, target: Path) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]]:
    """The process whose store is opened by `body`, with its standard output and error."""
    command = [sys.executable, "-c", SCRIPT.format(body=body), "address", "model", "1", str(target), "0", ""]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield process, process.stdout, process.stderr
        finally:
            process.kill()


def test_what_a_library_prints_is_no_verdict(tmp_path: Path) -> None:
    """It goes to standard error, and the verdict to standard output alone."""
    body = "print('hello', flush=True); os.write(1, b'hello'); raise ValueError('no store')"
    with copying(body, tmp_path / "copy") as (process, output, errors):
        assert json.loads(output.read())["message"] == "no store"
        assert errors.read().count(b"hello") == 2
        assert process.wait(60) == 1


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """However that one ends: a copy from a store that never answers ends at the end of its input."""
    with copying("os.write(2, b'copying'); time.sleep(600)", tmp_path / "copy") as (process, _, errors):
        assert errors.read(7) == b"copying"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.stdin.close()
        assert process.wait(60) == 1

"""Sends a running service requests that its OpenAPI document allows or forbids: `python -m tools.fuzz --cases 5000`.

Schemathesis generates the cases; `oversized.py` generates bodies with far too much of something. The program fails at

- a status of 500 or more;
- a status, a content type or a body that the document does not describe;
- a body that the document forbids but the service accepts;
- an oversized body that costs too much processor time.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import requests
import schemathesis
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from tools import process
from tools.oversized import BATCH, OVERSIZED_BYTES, violations

CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
TOKEN = "a-token-for-the-cases"


def fuzz(url: str, *, cases: int, names: Mapping[str, str], token: str | None = None, seed: int = 0) -> Counter[int]:
    """Send at least `cases` cases over all operations; returns the number of answers by status.

    `names` are values that the service knows for parameters of paths. Half of the cases use them, the other half use
    arbitrary texts. Raises at the first violation.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    document = requests.get(f"{url}/openapi.json", headers=headers, timeout=30).json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url)
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    runs = [
        (operation, mode, parameters)
        for operation in operations
        for mode in GenerationMode
        for parameters in (None, names)
        if operation.body or (mode is GenerationMode.POSITIVE and parameters is None)  # any text is valid in a path
    ]
    varied = [operation for operation, _, _ in runs if operation.body or operation.path_parameters]
    each = math.ceil(cases / len(varied))
    answers: Counter[int] = Counter()
    with requests.Session() as session:
        for operation, mode, parameters in runs:
            in_path = {p.name: names[p.name] for p in operation.path_parameters} if parameters else None

            @hypothesis.seed(seed)
            @hypothesis.settings(
                max_examples=each if operation in varied else 1,
                database=None,
                deadline=None,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            @hypothesis.given(case=operation.as_strategy(mode, path_parameters=in_path))
            def ask(case: Case[Any]) -> None:
                response = case.call(session=session, headers=headers)
                answers[response.status_code] += 1
                # The batch route answers 200 with the errors in the body.
                in_place: list[Any] = [checks.negative_data_rejection] if case.path == BATCH else []
                case.validate_response(response, checks=CHECKS, excluded_checks=in_place)

            ask()
    return answers


@contextmanager
def serving(checkpoint: Path, folder: Path) -> Iterator[tuple[process.Process, dict[str, str]]]:
    """A service with both ports that serves `checkpoint` from a store in `folder`, and the names that it knows."""
    store = FolderStore(folder / "store")
    model, version = store.push(read_checkpoint(checkpoint))
    store.move_label(model, "stable", version)
    settings = {
        "CERBERANK_STORE": str(folder / "store"),
        "CERBERANK_ADMIN_TOKEN": TOKEN,
        "CERBERANK_ADMIN_PORT": "0",
        "TMPDIR": str(folder),
    }
    with process.serving(Path(), folder / "log", **settings) as service:
        yield service, {"model": model, "version": version, "label": "stable"}


def main(argv: list[str]) -> None:
    """Fuzz both ports of a service with the bundled checkpoint, and print the numbers of answers by status."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, serving(default_checkpoint(), Path(folder)) as (service, names):
        options: dict[str, Any] = {"cases": arguments.cases, "seed": arguments.seed, "names": names}
        if broken := violations(service.url, service.process.pid, names, OVERSIZED_BYTES):
            raise AssertionError("\n".join(broken))
        print("public port, by status:", dict(sorted(fuzz(service.url, **options).items())))  # noqa: T201
        admin = fuzz(service.admin_url or "", token=TOKEN, **options)
        print("admin port, by status:", dict(sorted(admin.items())))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])

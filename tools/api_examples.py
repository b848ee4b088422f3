"""Rewrites the answers of the examples on the API's pages: `python -m tools.api_examples`.

Run it after the bundled checkpoint has changed.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.bundled import default_checkpoint
from tools.process import ROOT, Process, serving

PAGES = tuple(ROOT / "docs" / name for name in ("api.md", "dialects.md", "inference-protocols.md"))
DOCUMENTED = "http://127.0.0.1:8000"
COMMAND_AND_ANSWER = re.compile(r"```sh\n(.*?)```\n\n```json\n(.*?)```", re.DOTALL)


def run(command: str, service: Process) -> Any:
    """Run a command of the pages against `service`, and return the JSON that it prints."""
    assert DOCUMENTED in command
    command = command.replace(DOCUMENTED, service.url)
    return json.loads(subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout)


def rounded(value: Any) -> Any:
    """The value with its numbers rounded to three digits."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


def shown(value: Any, indent: str = "") -> str:
    """The value as JSON with a line for each field, and for each item of a list of objects."""
    inner = indent + "  "
    if isinstance(value, dict) and not indent:
        lines = [f"{inner}{json.dumps(name)}: {shown(each, inner)}" for name, each in value.items()]
        return "{\n" + ",\n".join(lines) + "\n}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(inner + json.dumps(each, ensure_ascii=False) for each in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def main() -> None:
    """Rewrite the pages."""
    with tempfile.TemporaryDirectory() as folder, serving(default_checkpoint(), Path(folder) / "log") as service:
        for page in PAGES:
            text = COMMAND_AND_ANSWER.sub(
                lambda match: f"```sh\n{match[1]}```\n\n```json\n{shown(rounded(run(match[1], service)))}\n```",
                page.read_text(),
            )
            page.write_text(text)


if __name__ == "__main__":
    main()

"""Reads a Dockerfile into its stages: instructions in order, continuation lines joined, comments left out."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

INSTRUCTION = re.compile(r"([A-Z]+)\s+(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, such as `RUN` and its command."""

    keyword: str
    value: str

    @property
    def options(self) -> dict[str, str]:
        """The leading options `--name=value`."""
        return dict(re.findall(r"--([a-z-]+)=(\S+)", self.value.split(" CMD ")[0]))

    @property
    def words(self) -> list[str]:
        """The words after the options, or the items if they are a list in JSON, as in `CMD`."""
        rest = re.sub(r"^(--[a-z-]+=\S+\s+)*(CMD\s+)?", "", self.value)
        return json.loads(rest) if rest.startswith("[") else shlex.split(rest)


@dataclass(frozen=True, slots=True)
class Stage:
    """The instructions between one `FROM` and the next."""

    name: str
    base: str
    instructions: tuple[Instruction, ...]

    def last(self, keyword: str) -> Instruction | None:
        """The last instruction `keyword`, such as `CMD`; earlier ones have no effect."""
        return next((each for each in reversed(self.instructions) if each.keyword == keyword), None)


def read_dockerfile(path: Path) -> dict[str, Stage]:
    """The stages by name, in order. Raises ValueError for an invalid line, AssertionError for an unnamed stage."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    stages: dict[str, Stage] = {}
    for line in filter(None, map(str.strip, joined.splitlines())):
        match = INSTRUCTION.fullmatch(line)
        if match is None:
            raise ValueError(f"{path}: {line!r} is not an instruction")
        keyword, value = match.groups()
        if keyword == "FROM":
            base, _, name = value.partition(" AS ")
            assert name, f"{path}: {line!r} names no stage"
            stages[name] = Stage(name, base, ())
        else:
            before = stages[name]
            added = (*before.instructions, Instruction(keyword, value))
            stages[name] = Stage(name, before.base, added)
    return stages


def inherited(name: str, keyword: str, stages: dict[str, Stage]) -> Instruction:
    """The instruction of the stage, or else of the nearest stage that it is based on."""
    return stages[name].last(keyword) or inherited(stages[name].base, keyword, stages)

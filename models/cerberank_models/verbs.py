"""The description of a verb of the `cerberank` program. A module of verbs imports nothing that the verbs need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """One verb of the program."""

    name: str
    target: str
    """`module:function`; the function takes the arguments after the verb and returns the exit code."""
    help: str
    """One line."""
    extra: str
    """The extra of this distribution that brings the libraries that the verb imports."""
    order: int
    """Where it stands in `cerberank --help`, the smallest first."""
    on_demand: Mapping[str, str] = field(default_factory=dict)
    """Libraries that only some of its options import, each with the extra that brings it."""

    def extra_for(self, library: str) -> str:
        """The extra that brings a library which the verb could not import."""
        return self.on_demand.get(library, self.extra)


TORCH = {"torch": "torch"}
"""What `--backend torch` imports (`Verb.on_demand`)."""

"""What the verbs of the `cerberank` program are, and which the installed packages bring.

A package names its verbs in a tuple and the tuple in the entry-point group `cerberank.verbs` (pyproject.toml), with the
extra that installs the package in brackets. Neither the tuple nor its module imports what the verbs need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint

GROUP = "cerberank.verbs"


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


@dataclass(frozen=True, slots=True)
class InstalledVerbs:
    """The verbs that can be called here."""

    verbs: Mapping[str, Verb]
    """By name, in the order of `cerberank --help`."""
    absent: tuple[str, ...]
    """Extras that bring packages with further verbs, which are not installed here."""


def installed_verbs(entry_points: Iterable[EntryPoint]) -> InstalledVerbs:
    """The verbs that these entry points name; a package that is not installed contributes none.

    Raises ModuleNotFoundError for a package that is installed and lacks its module.
    """
    verbs: list[Verb] = []
    absent: list[str] = []
    for entry in entry_points:
        try:
            verbs += entry.load()
        except ModuleNotFoundError as error:
            if error.name != entry.module.partition(".")[0]:
                raise
            absent += entry.extras
    ordered = sorted(verbs, key=lambda verb: verb.order)
    return InstalledVerbs({verb.name: verb for verb in ordered}, tuple(sorted(absent)))

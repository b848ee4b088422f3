"""The commands of `cerberank train sweep`."""

from __future__ import annotations

from cyclopts import App

from cerberank_models.commands.values import DEFAULTS
from cerberank_papers.sweep.cerberus import cerberus
from cerberank_papers.sweep.cerberus_models import cerberus_models
from cerberank_papers.sweep.grid import grid
from cerberank_papers.sweep.ssp import ssp
from cerberank_papers.sweep.trmd import trmd

app = App(
    name="sweep",
    help="Train a recipe with several settings, or the systems of a paper, and compare.",
    default_parameter=DEFAULTS,
)
app.command(grid)
app.command(cerberus)
app.command(trmd)
app.command(cerberus_models)
app.command(ssp)

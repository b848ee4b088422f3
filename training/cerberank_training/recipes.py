"""Recipes: what to train, as functions that return everything a run needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cerberank_models.config import EncodingConfig, ExitConfig
from cerberank_training.sampling import NegativeSampling
from cerberank_training.train import TrainConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A student: its shape, its data and its schedule."""

    name: str
    body_layers: int
    heads: int
    exits: tuple[ExitConfig, ...]
    encoding: EncodingConfig
    train_data: str
    """FORMAT:PATH relative to the data folder; article negatives need `articles-*` beside it."""
    dev_data: str
    sampling: NegativeSampling
    train: TrainConfig


def mini() -> Recipe:
    """`cerberank-mini`: B5 3H1 with exits after layers 2 and 4, from all-MiniLM-L6-v2, on squad-as2.

    Goal: a small, really trained checkpoint to ship. Command: `make train-mini DATA=... BASE=...`.
    Half of the steps train the heads alone, then CT's uniform sampling trains exits and heads: with 35,200
    questions (four tenths of an epoch) uniform sampling from the start would leave the heads a third of them.
    Measured figures, with machine and date, stand in the checkpoint's model card.
    """
    return Recipe(
        name="cerberank-mini",
        body_layers=5,
        heads=3,
        exits=(ExitConfig(after=2), ExitConfig(after=4)),
        encoding=EncodingConfig(max_length=128, question_length=48),
        train_data="squad-as2:squad-as2/train.jsonl.gz",
        dev_data="squad-as2:squad-as2/dev.jsonl.gz",
        sampling=NegativeSampling(),
        train=TrainConfig(steps=2200, final_only=0.5, dropout=0.0, learning_rate=6e-5),
    )


RECIPES = {"mini": mini}


def locate(spec: str, data: Path) -> str:
    """`FORMAT:PATH` with PATH taken relative to the data folder."""
    name, _, path = spec.partition(":")
    return f"{name}:{data / path}"

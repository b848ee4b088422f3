"""`cerberank checkpoint average`: the mean of the weights of checkpoints, which often ranks better than each of them.

All networks must have been trained from the same weights, for example with different seeds, losses or teachers ("Model
soups", Wortsman et al., 2022, arXiv:2203.05482). The mean of unrelated networks is useless.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.model_card import RUN
from cerberank_models.config import SCHEDULES, RankerConfig
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.output import note
from cerberank_training.runs.summary import training_data


def average(first_folder: Path, /, *more: Path, out: Path, version: str = "average") -> Path:
    """Average the weights of checkpoints that were trained further from the same weights.

    The first checkpoint gives the shape, the encoding and the tokenizer; checkpoints with one head count for every
    head. The result drops nothing by default.

    Args:
        first_folder: Checkpoint folder with model.safetensors.
        more: Further checkpoint folders.
        out: Checkpoint folder to make.
        version: Version of the new checkpoint.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; a checkpoint is never overwritten")
    folders = (first_folder, *more)
    checkpoints = [read_checkpoint(path) for path in folders]
    names = ", ".join(f"{each.config.name} {each.manifest.version}" for each in checkpoints)
    first = checkpoints[0]
    # The result knows the data that any of its parts was trained on.
    mean = average_rankers([load_ranker(checkpoint) for checkpoint in checkpoints])
    again = "\n`cerberank train tune` measures schedules for it." if mean.config.exits else ""
    data = {json.dumps(each, sort_keys=True): each for path in folders for each in training_data(path)}
    known = json.dumps({"earlier_data": list(data.values())}, indent=2).encode() + b"\n"
    card = (first.path / "README.md").read_text(encoding="utf-8")
    export_checkpoint(
        mean,
        Tokenizer.from_file(str(first.path / "tokenizer.json")),
        out,
        card=f"{card}\n## Average\n\nThe mean of the weights of {names}; the figures above are the first one's. "
        f"It drops nothing by default.{again}\n",
        version=version,
        source=f"average of {names}",
        forms=Forms(precisions=("fp32",)),
        files={RUN: known} if data else {},
    )
    note(
        f"cerberank checkpoint average: {out} is {first.config.name}@{version}, the mean of "
        f"{len(checkpoints)} checkpoints, with weights and ONNX fp32; next: "
        f"cerberank evaluate --checkpoint {out} --precision fp32 --data FORMAT:PATH"
    )
    return out


def average_rankers(rankers: Sequence[RankingNetwork]) -> RankingNetwork:
    """A network with the shape of the first one; each weight is the mean over the networks that have it.

    The head of a network with one head is averaged into every head. An exit is averaged over the networks that have the
    same exit. The result has no drop schedules and no least number of candidates, because these were measured on other
    weights. Raises ValueError when an encoder, a body or a head has another shape than the first network's, and when
    the first network's checkpoint has a first stage.
    """
    if not rankers:
        raise ValueError("nothing to average")
    if rankers[0].config.first_stage is not None:
        raise ValueError("checkpoint 1 has a first stage: average without one, then give the result one")
    result = copy.deepcopy(rankers[0])
    result.config = RankerConfig.model_validate(result.config.model_dump(exclude={*SCHEDULES}))
    for index, ranker in enumerate(rankers):
        _check_fit(result, ranker, index + 1)
    with torch.no_grad():
        _average(result.embeddings, [ranker.embeddings for ranker in rankers])
        _average(result.body, [ranker.body for ranker in rankers])
        for index, head in enumerate(result.heads):
            _average(head, [ranker.heads[index if len(ranker.heads) > 1 else 0] for ranker in rankers])
        for own, exit_ in zip(result.config.exits, result.exits, strict=True):
            with_it = [ranker for ranker in rankers if own in ranker.config.exits]
            _average(exit_, [ranker.exits[ranker.config.exits.index(own)] for ranker in with_it])
    return result


def _check_fit(first: RankingNetwork, other: RankingNetwork, position: int) -> None:
    ours, theirs = first.config, other.config
    if theirs.transformer != ours.transformer:
        raise ValueError(f"checkpoint {position} has another encoder than the first")
    heads = theirs.architecture.heads
    if theirs.architecture.model_copy(update={"heads": ours.architecture.heads}) != ours.architecture:
        raise ValueError(f"checkpoint {position} is {theirs.architecture}, the first is {ours.architecture}")
    if heads not in {1, ours.architecture.heads}:
        raise ValueError(f"checkpoint {position} has {heads} heads, not {ours.architecture.heads} or one")


def _average(result: torch.nn.Module, parts: Sequence[torch.nn.Module]) -> None:
    """Write the mean of `parts` into `result`, in double precision."""
    states: list[Mapping[str, Tensor]] = [part.state_dict() for part in parts]
    result.load_state_dict(
        {name: torch.stack([state[name].double() for state in states]).mean(dim=0) for name in result.state_dict()}
    )

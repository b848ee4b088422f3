"""Builds a student's network from a pretrained or fine-tuned encoder, or from a checkpoint to train it further."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.config import RankerConfig
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.from_hugging_face import initialise, load_weights, ranker_config
from cerberank_models.convert.loading import load_encoder
from cerberank_models.convert.modules import ModularHead
from cerberank_models.convert.source_network import read_network
from cerberank_models.convert.token_types import grow_token_types
from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_training.learning.settings import StudentObjective, StudentShape
from cerberank_training.runs.base import Base


@dataclass(frozen=True, slots=True)
class Student:
    """A network with the tokenizer that belongs to it."""

    ranker: RankingNetwork
    tokenizer: Tokenizer
    start: str
    """A line that names the weights which the network and its classifiers start from."""

    def encoder(self) -> PairEncoder:
        """A new pair encoder for this student."""
        config = self.ranker.config
        return PairEncoder(
            Tokenizer.from_str(self.tokenizer.to_str()),
            family=config.body.family,
            config=config.encoding,
            type_vocab_size=config.transformer.type_vocab_size,
        )


def build_student(shape: StudentShape, base: Base, *, seed: int, dropout: float) -> Student:
    """The student before its first training step.

    `shape` must be fitted to the base (`fitted`), whose files must be in the local cache. Layers b..n-1 are copied into
    every head, and so is the base's classifier if it reads layer n (CERBERUS's released code). Then all heads give the
    classifier's score at the start, and only different teachers or dropout make them differ. Exits and classifiers that
    the base lacks get random weights, with another seed for each head. A checkpoint as base may have other heads, exits
    and lengths of texts; its drop schedules are left out, because they were measured on its weights.
    Raises UnsupportedModelError when the base does not fit.
    """
    if base.checkpoint is not None:
        return _from_checkpoint(shape, base.checkpoint, seed=seed, dropout=dropout)
    tokenizer = base.tokenizer()
    head = base.head() if shape.heads else None
    encoder, fresh = _hugging_face(shape, base, head)
    if shape.token_types != "shared":
        grow_token_types(encoder, shape.encoding.segments, new=shape.token_types, seed=seed)
    config = ranker_config(
        encoder.config,
        name=shape.name,
        body_layers=shape.body_layers,
        heads=shape.heads,
        exits=shape.exit_configs,
        encoding=shape.encoding,
        logits=2 if fresh else encoder.config.num_labels,
        head=None if fresh else head,
    )
    ranker = RankingNetwork(config, dropout=dropout)
    load_weights(ranker, encoder.state_dict(), fresh_classifier=bool(fresh))
    initialise(ranker.exits, seed=seed)
    if fresh:
        _initialise_classifiers(ranker, seed=seed)
    start = _start(ranker, f"{base.place}, {base.kind}", fresh, carried=0)
    return Student(ranker, tokenizer.backend_tokenizer, start)


def fitted(base: Base, shape: StudentShape) -> StudentShape:
    """The shape with the depth of its body and the form of its exits.

    Raises UnsupportedModelError for a base that does not fit.
    """
    transformer = base.layers()
    config = None if base.checkpoint is None else base.checkpoint.config
    base.check_room(shape.encoding.max_length)
    if shape.layers is not None and shape.layers > transformer.layers:
        raise UnsupportedModelError(f"--layers {shape.layers}: {base.place} has {transformer.layers}")
    layers = shape.layers or transformer.layers
    body = shape.body_layers
    if body is None:
        body = config.architecture.body_layers if config and shape.layers is None else layers - bool(shape.heads)
    if body > layers:
        raise UnsupportedModelError(f"--body-layers {body}: of {base.place} {layers} layers are used")
    if not shape.heads and (body < layers or not shape.exits or shape.exits[-1] < body):
        raise UnsupportedModelError(
            f"--heads 0: the last exit gives the score and reads the last of the {layers} layers of {base.place}: give "
            f"--body-layers {layers} and --exits that end in {layers}, or fewer --layers"
        )
    if shape.exits and (last := shape.exits[-1]) > body:
        raise UnsupportedModelError(f"--exits {last}: the body has {body} layers")
    return replace(shape, body_layers=body, exit_token_features=_token_features(shape, config))


def _token_features(shape: StudentShape, config: RankerConfig | None) -> int:
    """The number of token features of the exits: as given, or that of the base's exits at the same places."""
    if shape.exit_token_features is not None or config is None:
        return shape.exit_token_features or 0
    return max((exit_.token_features for exit_ in config.exits if exit_.after in shape.exits), default=0)


def copied_heads(
    ranker: RankingNetwork, objective: StudentObjective, teachers: Sequence[object], *, dropout: float
) -> str:
    """A line on heads that stay copies, because they have equal weights and learn the same; empty without such heads.

    Dropout makes heads differ. Teachers are compared with each other, because one may be given several times.
    """
    if dropout:
        return ""
    heads = len(ranker.heads)
    copies = {
        each
        for (one, head), (two, other) in combinations(enumerate(ranker.heads, start=1), 2)
        if objective.lesson(one - 1, heads, teachers) == objective.lesson(two - 1, heads, teachers)
        and all(map(torch.equal, head.state_dict().values(), other.state_dict().values()))
        for each in (one, two)
    }
    if not copies:
        return ""
    return (
        f"heads {', '.join(map(str, sorted(copies)))} start from the same weights and learn the same without dropout, "
        "so they stay copies: --heads 1, --dropout 0.1 or a --teacher for each head avoids it"
    )


def pretrained_encoder(base: Base, *, layers: int | None) -> Any:
    """The Hugging Face encoder `base`, or only its first `layers` layers.

    Raises UnsupportedModelError when it has fewer layers.
    """
    depth = base.described.num_hidden_layers
    if layers is not None and not 0 < layers <= depth:
        raise UnsupportedModelError(f"{base.place} has {depth} layers, not {layers}")
    described = copy.deepcopy(base.described)
    described.num_hidden_layers = layers or depth
    return load_encoder(str(base.folder), config=described)


def _hugging_face(shape: StudentShape, base: Base, head: ModularHead | None) -> tuple[Any, str]:
    """The base with its classifier and an empty text, or its encoder and the reason that no classifier is used."""
    described = base.described
    if not shape.heads or not (base.classifies or head):
        return pretrained_encoder(base, layers=shape.layers), "has no classifier"
    if not base.is_cross_encoder and head is None:
        return pretrained_encoder(base, layers=shape.layers), f"classifies into {described.num_labels} labels"
    if shape.layers not in (None, described.num_hidden_layers):
        return pretrained_encoder(base, layers=shape.layers), "has a classifier that reads a later layer"
    return read_network(base.source, described, head), ""


def _from_checkpoint(shape: StudentShape, checkpoint: Checkpoint, *, seed: int, dropout: float) -> Student:
    """A network of the given shape with the checkpoint's weights. Additional heads are copies of its first head."""
    path = checkpoint.path
    if checkpoint.config.first_stage is not None:
        raise UnsupportedModelError(f"{path} has a first stage, which a student does not keep: add it to the student")
    lacks = checkpoint.config.transformer.type_vocab_size < shape.encoding.segments
    if shape.token_types == "anew" or (shape.token_types != "shared" and lacks):
        raise UnsupportedModelError(f"{path} keeps its table of token types: token_types must be shared")
    source = load_ranker(checkpoint)
    base_config = checkpoint.config
    architecture, depth = base_config.architecture, base_config.transformer.layers
    layers, body = shape.layers or depth, shape.body_layers or 0  # `fitted` has set it
    one_layer = base_config.body.shared_layers
    if one_layer and architecture.head_layers and body != architecture.body_layers:
        raise UnsupportedModelError(f"{path} is {architecture}, and its body's layers are one: body_layers must stay")
    if body > architecture.body_layers and (architecture.heads > 1 or one_layer):
        raise UnsupportedModelError(f"{path} is {architecture}: a body of {body} layers cannot hold its heads' layers")
    config = RankerConfig(
        name=shape.name,
        transformer=base_config.transformer.model_copy(update={"layers": layers}),
        architecture=architecture.model_copy(
            update={"body_layers": body, "heads": shape.heads, "head_layers": layers - body}
        ),
        exits=shape.exit_configs,
        encoding=shape.encoding,
        languages=base_config.languages,
    )
    ranker = RankingNetwork(config, dropout=dropout)
    initialise(ranker.exits, seed=seed)
    ranker.embeddings.load_state_dict(source.embeddings.state_dict())
    _copy(_stack(source, 0)[: len(ranker.body)], ranker.body)
    copy_norm(source, ranker)
    fresh = "" if len(source.heads) and layers == depth else "has no classifier that reads this layer"
    if fresh:
        _initialise_classifiers(ranker, seed=seed)
    for index, head in enumerate(ranker.heads):
        source_head = index if index < len(source.heads) else 0
        _copy(_stack(source, source_head)[body:layers], head.get_submodule("layers"))
        if not fresh:
            for part in ("norm", "classifier"):
                head.get_submodule(part).load_state_dict(source.heads[source_head].get_submodule(part).state_dict())
    carried = [exit_config in base_config.exits for exit_config in config.exits]
    for exit_, exit_config, is_carried in zip(ranker.exits, config.exits, carried, strict=True):
        if is_carried:
            exit_.load_state_dict(source.exits[base_config.exits.index(exit_config)].state_dict())
    start = _start(ranker, f"{path}, a checkpoint of {architecture}", fresh, carried=sum(carried))
    return Student(ranker, Tokenizer.from_file(str(path / "tokenizer.json")), start)


def _stack(ranker: RankingNetwork, head: int) -> list[nn.Module]:
    """The layers that compute a head's score: the body's, then the head's. A body may use one module at all depths."""
    body = [ranker.body[min(depth, len(ranker.body) - 1)] for depth in range(ranker.config.architecture.body_layers)]
    head_layers = ranker.heads[head].get_submodule("layers").children() if len(ranker.heads) else ()
    return [*body, *head_layers]


def _copy(layers: list[nn.Module], into: nn.Module) -> None:
    targets = list(into.children())  # a single one if all depths share their weights
    for layer, target in zip(layers[: len(targets)], targets, strict=True):
        target.load_state_dict(layer.state_dict())


def copy_norm(source: RankingNetwork, ranker: RankingNetwork) -> None:
    """Copy the final norm of `source` into all exits and heads of `ranker`, in place."""
    norm = (source.heads[0] if len(source.heads) else source.exits[-1]).get_submodule("norm").state_dict()
    for part in (*ranker.exits, *ranker.heads):
        part.get_submodule("norm").load_state_dict(norm)


def _initialise_classifiers(ranker: RankingNetwork, *, seed: int) -> None:
    for index, head in enumerate(ranker.heads):
        initialise(head.get_submodule("classifier"), seed=seed + 1 + index)


def _start(ranker: RankingNetwork, base: str, fresh: str, *, carried: int) -> str:
    """The line `Student.start`; `carried` is the number of exits that are copied from the base."""
    exits = "; the exits are the base's" if ranker.exits else ""
    if carried < len(ranker.exits):
        some = f"{carried} of {len(ranker.exits)} exits are the base's, the others" if carried else "the exits"
        exits = f"; {some} start from random weights"
    if not len(ranker.heads):
        return f"starts from {base}, without heads{exits}"
    if fresh:
        return f"starts from {base}, which {fresh}: the heads' classifiers start from random weights{exits}"
    return f"starts from {base}, whose classifier the heads start from{exits}"

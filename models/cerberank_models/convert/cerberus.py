"""The checkpoint of CERBERUS's authors: a folder with `cerberus_model.pt`, a state dict of ELECTRA's layers.

The format is that of github.com/amazon-science/wqa-cerberus. Names of tensors within layers and classifiers are those
of transformers' ELECTRA. The file has no configuration: the shape follows from names and sizes of the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import ElectraConfig, ElectraForSequenceClassification

from cerberank_models.backends.stage_contract import Scores
from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.calibration import SECTION as CALIBRATED
from cerberank_models.checkpoint.atomic import appearing_folder, write_bytes
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.model_card import RUN, without_section
from cerberank_models.config import EncodingConfig, RankerConfig
from cerberank_models.convert.families import FAMILIES, Names, UnsupportedModelError
from cerberank_models.convert.from_hugging_face import ranker_config
from cerberank_models.convert.golden_texts import Texts
from cerberank_models.convert.hugging_face_folder import tokenizer_files
from cerberank_models.convert.loading import stored_weights
from cerberank_models.convert.source import CERBERUS, Source
from cerberank_models.convert.source_network import source_scores
from cerberank_models.convert.weight_names import listed
from cerberank_models.network.ranking_network import RankingNetwork

TOKENIZER = "google/electra-base-discriminator"
"""The hub id of the tokenizer that the authors' README names."""
LENGTH = 128
"""The most tokens of a pair, as the authors call their tokenizer."""
ATTENTION_WIDTH = 64
"""The width of an attention head in all sizes of ELECTRA, from which their number follows: no tensor shows it."""
BODY, HEADS = "cerberus_shared_encoder.layer.", "cerberus_heads."
TOKENS, POSITIONS, TYPES = (f"embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type"))
INNER = f"{BODY}0.intermediate.dense.weight"
SHAPE = (TOKENS, POSITIONS, TYPES, INNER)
"""The tensors whose sizes are those of the whole network."""
COPY = "core_base_model."
"""The prefix of a second copy of the encoder. It is ignored, because the authors' network runs the embeddings, the body
and the heads under their own names; their code keeps the whole base model for its mask of attention."""
POSITION_IDS = "embeddings.position_ids"
"""The numbers 0, 1, ... as some versions of transformers save them beside the weights."""
LAYER = re.compile(r"(?:cerberus_shared_encoder|cerberus_heads\.(?P<head>\d+))\.layer\.(?P<layer>\d+)\.(?P<name>.+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class CerberusWeights:
    """The tensors of a CERBERUS by the authors' names, without the second copy, and its shape."""

    place: str
    """The folder, or the name of the model, for messages."""
    state: Mapping[str, Tensor]
    configuration: ElectraConfig
    """The configuration of the body with one head, as a sequence classifier of two labels."""
    body_layers: int
    heads: int

    @classmethod
    def of(cls, state: Mapping[str, Tensor], place: str) -> CerberusWeights:
        """The weights `state` with their shape. Raises UnsupportedModelError if a tensor that shows it is missing."""
        layers = [matched for name in state if (matched := LAYER.fullmatch(name))]
        body = len({matched["layer"] for matched in layers if matched["head"] is None})
        heads = len({name.split(".")[1] for name in state if name.startswith(HEADS)})
        head_layers = len({matched["layer"] for matched in layers if matched["head"] is not None})
        sizes = {name: _matrix(state, name, place).shape for name in SHAPE}
        vocabulary, embedding_size = sizes[TOKENS]
        inner, hidden = sizes[INNER]
        if not heads:
            raise UnsupportedModelError(f"{place}: {CERBERUS} lacks {HEADS}0.classifier.dense.weight: it has no heads")
        if hidden % ATTENTION_WIDTH:
            raise UnsupportedModelError(
                f"{place}: {hidden} is not the width of an ELECTRA, a multiple of {ATTENTION_WIDTH}"
            )
        configuration = ElectraConfig(
            vocab_size=vocabulary,
            embedding_size=embedding_size,
            hidden_size=hidden,
            num_hidden_layers=body + head_layers,
            num_attention_heads=hidden // ATTENTION_WIDTH,
            intermediate_size=inner,
            max_position_embeddings=sizes[POSITIONS][0],
            type_vocab_size=sizes[TYPES][0],
            num_labels=2,
        )
        return cls(place=place, state=state, configuration=configuration, body_layers=body, heads=heads)

    def config(self, name: str, encoding: EncodingConfig) -> RankerConfig:
        """The configuration of the ranker `name` with these weights, which reads pairs by `encoding`."""
        return ranker_config(
            self.configuration, name=name, body_layers=self.body_layers, heads=self.heads, encoding=encoding
        )

    def load(self, config: RankerConfig) -> RankingNetwork:
        """The ranker of this configuration (`config`) in fp32.

        Raises UnsupportedModelError with the names of tensors that the file lacks, that the ranker has no place for, or
        that have another shape than the first layer's widths ask for.
        """
        with torch.device("meta"):
            ranker = RankingNetwork(config)
        wanted = {authors_name(key): (key, value.shape) for key, value in ranker.state_dict().items()}
        if missing := wanted.keys() - self.state.keys():
            raise UnsupportedModelError(
                f"{self.place}: {CERBERUS} lacks {listed(missing)}, which {config.architecture} has"
            )
        if unexpected := self.state.keys() - wanted.keys():
            raise UnsupportedModelError(
                f"{self.place}: {config.architecture} has no place for {listed(unexpected)} of {CERBERUS}"
            )
        if unequal := [name for name, (_, shape) in wanted.items() if self.state[name].shape != shape]:
            shape = wanted[unequal[0]][1]
            raise UnsupportedModelError(
                f"{self.place}: {unequal[0]} has the shape {list(self.state[unequal[0]].shape)}, not {list(shape)}"
            )
        weights = {key: self.state[name].float() for name, (key, _) in wanted.items()}
        ranker.load_state_dict(weights, strict=True, assign=True)
        return ranker.eval()

    def one_head(self, head: int) -> dict[str, Tensor]:
        """The body, and the layers and the classifier of `head` (from 0), by the names of transformers' ELECTRA."""
        weights = {}
        for name, value in self.state.items():
            matched = LAYER.fullmatch(name)
            if matched and matched["head"] in (None, str(head)):
                depth = int(matched["layer"]) + (0 if matched["head"] is None else self.body_layers)
                weights[f"encoder.layer.{depth}.{matched['name']}"] = value
            elif name.startswith(f"{HEADS}{head}.classifier."):
                weights[name.removeprefix(f"{HEADS}{head}.")] = value
            elif not name.startswith(HEADS) and not matched:
                weights[name] = value
        return weights

    def scores(self, tokenizer: Any, texts: Texts, *, longest: int) -> list[Scores]:
        """The scores, `[n]` per question, by transformers' ELECTRA: the mean over heads of the probability of class 1.

        Each head is run as a classifier of its own, on pairs by the model's own `tokenizer`.
        """
        by_head = []
        for head in range(self.heads):
            network = ElectraForSequenceClassification(self.configuration)
            weights = self.one_head(head)
            network.load_state_dict(
                {name if name.startswith("classifier.") else f"electra.{name}": each for name, each in weights.items()},
                strict=True,
            )
            by_head.append(source_scores(network, tokenizer, texts, longest=longest))
        return [np.mean(each, axis=0) for each in zip(*by_head, strict=True)]


def read_cerberus(source: Source) -> CerberusWeights:
    """The weights in the folder of `source`; nothing but tensors is unpickled.

    Raises UnsupportedModelError for a file that is not a state dict of this format.
    """
    stored = stored_weights(source.place, source.folder / CERBERUS)
    state = {name: value for name, value in stored.items() if not name.startswith(COPY) and name != POSITION_IDS}
    if final := sorted(name for name in state if name.startswith("final_classifier.")):
        raise UnsupportedModelError(
            f"{source.place}: {final[0]} belongs to a classifier that reads all heads together, which is not "
            "supported: the score is the mean of the heads' probabilities"
        )
    weights = CerberusWeights.of(state, source.place)
    # A view can repeat one number any number of times.
    used, size = sum(value.nbytes for value in state.values()), (source.folder / CERBERUS).stat().st_size
    if used > size:
        raise UnsupportedModelError(f"{source.place}: {CERBERUS} has {size} bytes, and its tensors would take {used}")
    return weights


def authors_name(key: str) -> str:
    """The authors' name of the ranker's weight `key`.

    >>> authors_name("heads.2.layers.0.up.bias")
    'cerberus_heads.2.layer.0.intermediate.dense.bias'
    """
    names = FAMILIES["electra"]
    part, _, rest = key.partition(".")
    if part == "embeddings":
        return _renamed_back(rest, names.embeddings)
    number, _, rest = rest.partition(".")
    if part == "body":
        return f"{BODY}{number}.{_renamed_back(rest, names.layer_names)}"
    if rest.startswith("layers."):
        _, layer, rest = rest.split(".", 2)
        return f"{HEADS}{number}.layer.{layer}.{_renamed_back(rest, names.layer_names)}"
    return f"{HEADS}{number}.{_renamed_back(rest, names.classifier)}"


def export_cerberus(checkpoint: Checkpoint, out: Path) -> None:
    """Write the checkpoint to the folder `out` as the authors' code saves it, with its tokenizer, atomically.

    Raises UnsupportedModelError for a ranker that `import` would not read as it is, and FileExistsError.
    """
    check_exportable(checkpoint.config)
    if out.exists():
        raise FileExistsError(f"{out} exists")
    ranker = load_ranker(checkpoint).float()
    config = ranker.config
    state = {authors_name(key): value.contiguous() for key, value in ranker.state_dict().items()}
    weights = CerberusWeights.of(state, config.name)
    read = weights.config(config.name, config.encoding)
    if (read.transformer, read.architecture) != (config.transformer, config.architecture):
        raise UnsupportedModelError(
            f"{config.name} is no CERBERUS of the authors' shape: {CERBERUS} has no place for "
            f"{', '.join(_differing(read, config))}"
        )
    copy = {COPY + name: each for name, each in weights.one_head(0).items() if not name.startswith("classifier.")}
    tokenizer = Tokenizer.from_file(str(checkpoint.path / "tokenizer.json"))
    files = tokenizer_files(tokenizer, config.body, max_length=config.encoding.max_length)
    card = without_section((checkpoint.path / "README.md").read_text(encoding="utf-8"), CALIBRATED)
    files["README.md"] = card.encode()
    if RUN in checkpoint.manifest.files:
        files[RUN] = (checkpoint.path / RUN).read_bytes()
    with appearing_folder(out) as folder:
        torch.save(state | copy, folder / CERBERUS)
        for name, content in files.items():
            write_bytes(folder / name, content)


def check_exportable(config: RankerConfig) -> None:
    """Raise UnsupportedModelError for a ranker with parts that the authors' network lacks."""
    lacking = {
        f"layers of {config.transformer.family}": config.transformer.family != "electra",
        "a score that is an exit's": not config.architecture.heads,
        "exits": bool(config.exits and config.architecture.heads),
        "a first stage": config.first_stage is not None,
        "the context as a third segment": config.encoding.segments != 2,
    }
    if parts := [part for part, lacks in lacking.items() if lacks]:
        raise UnsupportedModelError(
            f"{config.name} has {' and '.join(parts)}, and the authors' CERBERUS is ELECTRA's layers with heads alone"
        )


def _differing(read: RankerConfig, config: RankerConfig) -> Iterator[str]:
    """The fields of the network, with their values in `config`, that differ in `read`."""
    for part in ("transformer", "architecture"):
        one, other = getattr(read, part).model_dump(), getattr(config, part).model_dump()
        yield from (f"{name} = {value}" for name, value in other.items() if one.get(name) != value)


def _matrix(state: Mapping[str, Tensor], name: str, place: str) -> Tensor:
    """The tensor `name`. Raises UnsupportedModelError if it is missing or has other than two dimensions."""
    if name not in state:
        raise UnsupportedModelError(f"{place}: {CERBERUS} lacks {name}")
    if state[name].ndim != 2:
        raise UnsupportedModelError(f"{place}: {name} has the shape {list(state[name].shape)}, not two sizes")
    return state[name]


def _renamed_back(name: str, names: Names) -> str:
    """The name in ELECTRA's checkpoints of a part of the ranker."""
    return next(theirs + name.removeprefix(ours) for theirs, ours in names.items() if name.startswith(ours))

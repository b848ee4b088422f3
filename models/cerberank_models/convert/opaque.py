"""A sequence classifier of any family becomes a checkpoint with an opaque network: a graph a precision, no weights.

Its tokenizer tells how its pairs are built, and its configuration becomes that of a ranker with a single stage.

fp32 must reproduce the scores that the model gives each pair alone, without padding. int8 must stay near fp32; where it
does not, fp32 alone is written.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from cerberank_models.backends.batching import BucketRule
from cerberank_models.backends.contract import Scores
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.checkpoint.folder import write_checkpoint
from cerberank_models.config import ArchitectureConfig, EncodingConfig, ExitConfig, RankerConfig
from cerberank_models.convert.checkpoint import PARITY, ParityError, check_differing, check_parity, golden_questions
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.hugging_face import transformer_config
from cerberank_models.convert.opaque_graph import quantise_graph
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.rank import rank_pairs
from cerberank_models.transformer import OpaqueTransformer, PairTemplate

QUESTION, TEXT = "How tall is it?", "It is 330 metres tall."


def why_opaque(source: Any) -> str | None:
    """The reason that the network of a `transformers` configuration has no layers here; None where it has."""
    try:
        transformer_config(source)
    except UnsupportedModelError as error:
        return str(error)
    return None


def opaque_config(source: Any, tokenizer: Any, *, name: str, encoding: EncodingConfig) -> RankerConfig:
    """The ranker of a `transformers` configuration and tokenizer, whose pairs are cut as `encoding` says.

    Raises UnsupportedModelError for a model that does not say the size of its vocabulary, and for pairs that are not
    built as `PairTemplate` states.
    """
    vocabulary = getattr(source, "vocab_size", None)
    if not isinstance(vocabulary, int):
        raise UnsupportedModelError(
            f"the configuration of this {source.model_type} states no vocab_size: it reads no text"
        )
    layers = getattr(source, "num_hidden_layers", None) or 1
    types = tokenizer(QUESTION, TEXT).get("token_type_ids", [0])
    return RankerConfig(
        name=name,
        transformer=OpaqueTransformer(
            family="opaque",
            model_type=source.model_type,
            vocab_size=vocabulary,
            layers=layers,
            max_positions=encoding.max_length,
            type_vocab_size=1 + max(types),
        ),
        architecture=ArchitectureConfig(
            body_layers=layers, heads=0, head_layers=0, classifier_logits=2 if source.num_labels == 2 else 1
        ),
        exits=(ExitConfig(after=layers, pooling="first"),),
        encoding=encoding.model_copy(update={"template": pair_template(tokenizer)}),
    )


def pair_template(tokenizer: Any) -> PairTemplate:
    """The special tokens that a fast tokenizer of transformers puts around a question and a text.

    Raises UnsupportedModelError for other layouts than `first question separator ... text separator`.
    """
    plain: Tokenizer = tokenizer.backend_tokenizer
    question, text = (plain.encode(each, add_special_tokens=False).ids for each in (QUESTION, TEXT))
    pair = list(tokenizer(QUESTION, TEXT)["input_ids"])
    between = len(pair) - len(question) - len(text) - 2
    if between < 1 or pair != [pair[0], *question, *[pair[-1]] * between, *text, pair[-1]]:
        raise UnsupportedModelError(
            f"its tokenizer makes pairs such as {' '.join(tokenizer.convert_ids_to_tokens(pair))!r}, which is not a "
            "first token, the question, separators, the text and a separator"
        )
    first, separator = tokenizer.convert_ids_to_tokens([pair[0], pair[-1]])
    return PairTemplate(first=first, separator=separator, between=between)


logger = logging.getLogger(__name__)

PRECISIONS = ("fp32", "int8")
ONE_BATCH = BucketRule(overhead=1 << 20)
"""Pairs of mixed lengths are padded into one batch, up to its limit of tokens."""
GRAPH = "stage-0.onnx"


def long_texts(tokens: int) -> tuple[str, tuple[str, ...]]:
    """A question with a text of at least `tokens` tokens and a short one: what a pair of full length is tried with."""
    question, texts = GOLDEN_TEXTS[0]
    return question, (" ".join((texts[0].split() * tokens)[:tokens]), texts[0])


def export_opaque(
    graph: Callable[[Path], None],
    config: RankerConfig,
    tokenizer: Tokenizer,
    path: Path,
    *,
    card: str,
    version: str,
    source: str,
    precisions: Sequence[str] = PRECISIONS,
    expected: Sequence[Scores] | None = None,
) -> None:
    """Write the checkpoint folder `path` atomically; `graph` writes the fp32 graph to the path that it is given.

    `expected` are the model's own scores of the golden texts and of `long_texts`; without any, the graph's own scores
    of each pair alone are what its padded batches must reproduce. Raises ParityError when fp32 differs, or int8 does
    and fp32 is not wanted, UnsupportedModelError for a model that scores all pairs alike, ValueError for a precision
    that an opaque network has not.
    """
    if not precisions or not set(precisions) <= set(PRECISIONS):
        raise ValueError(
            f"an opaque network has graphs in {' or '.join(PRECISIONS)}, not {', '.join(precisions) or 'none'}: give "
            "--precisions with one of these, and serve it with CERBERANK_BACKEND=onnx"
        )
    with tempfile.TemporaryDirectory() as scratch:
        fp32, int8 = (Path(scratch) / precision / GRAPH for precision in PRECISIONS)
        fp32.parent.mkdir()
        graph(fp32)
        scores = _scores(fp32, config, tokenizer)
        check_parity("fp32", _alone(fp32, config, tokenizer) if expected is None else expected, scores, PARITY["fp32"])
        check_differing(source, scores)
        recorded, graphs = {"fp32": scores}, {"fp32": fp32}
        if "int8" in precisions:
            quantise_graph(fp32, int8)
            try:
                recorded["int8"] = _scores(int8, config, tokenizer)
                check_parity("int8", scores, recorded["int8"], PARITY["int8"])
                graphs["int8"] = int8
            except ParityError as error:
                if "fp32" not in precisions:
                    raise ParityError(f"{error}: import it in fp32") from error
                logger.warning("%s: only fp32 is written, serve it with CERBERANK_PRECISION=fp32", error)
        kept = {precision: graphs[precision] for precision in precisions if precision in graphs}
        write_checkpoint(
            path,
            config=config,
            tokenizer=tokenizer.to_str().encode(),
            card=card + _forms(tuple(kept)),
            version=version,
            source=source,
            files={f"onnx/{name}/{each.name}": each for name, file in kept.items() for each in file.parent.iterdir()},
            golden=golden_questions({name: recorded[name][: len(GOLDEN_TEXTS)] for name in kept}),
        )


def _forms(kept: Sequence[str]) -> str:
    if "int8" in kept:
        return (
            f"\nPrecisions: {', '.join(kept)}. int8 is ONNX Runtime's dynamic quantisation: a score depends a little "
            "on the pairs that run in the same batch.\n"
        )
    return f"\nPrecisions: {', '.join(kept)}; there is no int8 form.\n"


def _scores(graph: Path, config: RankerConfig, tokenizer: Tokenizer) -> list[Scores]:
    """The scores of every question's texts, padded into one batch."""
    backend = OnnxBackend([graph], config, threads=1, buckets=ONE_BATCH)
    encoder = opaque_encoder(config, tokenizer)
    return [
        rank_pairs(backend, encoder.encode(question, [Candidate(text=text) for text in texts])).scores
        for question, texts in (*GOLDEN_TEXTS, long_texts(config.encoding.max_length))
    ]


def _alone(graph: Path, config: RankerConfig, tokenizer: Tokenizer) -> list[Scores]:
    """The same scores, each pair in a batch of its own."""
    backend = OnnxBackend([graph], config, threads=1)
    encoder = opaque_encoder(config, tokenizer)
    return [
        np.concatenate([rank_pairs(backend, encoder.encode(question, [Candidate(text=text)])).scores for text in texts])
        for question, texts in (*GOLDEN_TEXTS, long_texts(config.encoding.max_length))
    ]


def opaque_encoder(config: RankerConfig, tokenizer: Tokenizer) -> PairEncoder:
    """The encoder of an opaque network's pairs."""
    return PairEncoder(
        tokenizer, family="opaque", config=config.encoding, type_vocab_size=config.transformer.type_vocab_size
    )

"""Imports a sequence classifier of any family as an opaque network: one graph per precision, and no weights.

The layout of pairs is read from the model's tokenizer. The ranker's configuration has a single stage.

The fp32 graph must reproduce the scores that the model gives each pair alone, without padding. The scores of the int8
graph must be close to fp32; if they are not, only fp32 is written.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import Tokenizer

from cerberank_models.backends.batching import BucketRule
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.stage_contract import Scores
from cerberank_models.checkpoint.folder import write_checkpoint
from cerberank_models.config import ArchitectureConfig, EncodingConfig, ExitConfig, RankerConfig
from cerberank_models.convert.checkpoint import PARITY, ParityError, check_differing, check_parity, golden_questions
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.from_hugging_face import transformer_config
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS, encoded
from cerberank_models.convert.opaque_graph import quantise_graph
from cerberank_models.encoding import PairEncoder
from cerberank_models.rank_pairs import rank_pairs
from cerberank_models.transformer import OpaqueTransformer, PairTemplate

QUESTION, TEXT = "How tall is it?", "It is 330 metres tall."


def why_opaque(source: Any) -> str | None:
    """The reason why this package has no layers for a `transformers` configuration; None if it has."""
    try:
        transformer_config(source)
    except UnsupportedModelError as error:
        return str(error)
    return None


def opaque_config(source: Any, tokenizer: Any, *, name: str, encoding: EncodingConfig) -> RankerConfig:
    """The ranker's configuration for a `transformers` configuration and tokenizer; `encoding` says how pairs are cut.

    Raises UnsupportedModelError for a model that does not state the size of its vocabulary, and for pairs that do not
    fit a `PairTemplate`.
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
    """The special tokens that a fast tokenizer of transformers adds around a question and a text.

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
"""A rule that pads pairs of mixed lengths into one batch, up to the limit of tokens."""
GRAPH = "stage-0.onnx"


def long_texts(tokens: int) -> tuple[str, tuple[str, ...]]:
    """A question with a short text and one of at least `tokens` tokens, to test pairs of full length."""
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
    expected: Sequence[Scores],
    files: Mapping[str, Path] = MappingProxyType({}),
) -> None:
    """Write the checkpoint folder `path` atomically. `graph` writes the fp32 graph to the path that it is called with.

    The graph must reproduce `expected`, the model's own scores of the golden texts and of `long_texts`, in padded
    batches. `files` are other files to include, by their names in the folder.

    Raises ParityError if fp32 differs, or if int8 differs and fp32 was not requested; UnsupportedModelError for a model
    that gives all pairs the same score; ValueError for a precision that opaque networks do not support.
    """
    if not precisions or not set(precisions) <= set(PRECISIONS):
        raise ValueError(
            f"an opaque network has graphs in {' or '.join(PRECISIONS)}, not {', '.join(precisions) or 'none'}: give "
            "--forms with one of these, and serve it with CERBERANK_BACKEND=onnx"
        )
    with tempfile.TemporaryDirectory() as scratch:
        # fp32 is always made: it is compared with the model, and int8 with it.
        fp32, int8 = (Path(scratch) / precision / GRAPH for precision in PRECISIONS)
        fp32.parent.mkdir()
        graph(fp32)
        scores = _scores(fp32, config, tokenizer)
        check_parity("fp32", expected, scores, PARITY["fp32"])
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
        forms = [precision for precision in precisions if precision in graphs]
        write_checkpoint(
            path,
            config=config,
            tokenizer=tokenizer.to_str().encode(),
            card=card + _forms(forms),
            version=version,
            source=source,
            files={
                **files,
                **{f"onnx/{form}/{file.name}": file for form in forms for file in graphs[form].parent.iterdir()},
            },
            golden=golden_questions({form: recorded[form][: len(GOLDEN_TEXTS)] for form in forms}),
        )


def _forms(precisions: Sequence[str]) -> str:
    if "int8" in precisions:
        return (
            f"\nPrecisions: {', '.join(precisions)}. int8 is ONNX Runtime's dynamic quantisation: a score depends a "
            "little on the pairs that run in the same batch.\n"
        )
    return f"\nPrecisions: {', '.join(precisions)}; there is no int8 form.\n"


def _scores(graph: Path, config: RankerConfig, tokenizer: Tokenizer) -> list[Scores]:
    """The scores of every question's texts."""
    backend = OnnxBackend([graph], config, threads=1, buckets=ONE_BATCH)
    texts = (*GOLDEN_TEXTS, long_texts(config.encoding.max_length))
    return [rank_pairs(backend, pairs).scores for pairs in encoded(opaque_encoder(config, tokenizer), texts)]


def opaque_encoder(config: RankerConfig, tokenizer: Tokenizer) -> PairEncoder:
    """The encoder for the pairs of an opaque network."""
    return PairEncoder(
        tokenizer, family="opaque", config=config.encoding, type_vocab_size=config.transformer.type_vocab_size
    )

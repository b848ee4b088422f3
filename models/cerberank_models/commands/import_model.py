"""The command `cerberank import`, which makes a checkpoint from a Hugging Face model that ranks."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.protocol import check_model
from cerberank_models.commands.import_decoder import import_decoder
from cerberank_models.commands.question_lines import read_questions
from cerberank_models.commands.values import Count, Names
from cerberank_models.config import EncodingConfig
from cerberank_models.convert.checkpoint import (
    PARITY,
    Forms,
    check_differing,
    check_parity,
    export_checkpoint,
    golden_scores,
)
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.hugging_face import load_weights, ranker_config, transformer_config
from cerberank_models.convert.limits import check_source
from cerberank_models.convert.modules import SENTENCE_TRANSFORMERS
from cerberank_models.convert.opaque import why_opaque
from cerberank_models.convert.own_network import (
    own_scores,
    read_config,
    read_head,
    read_network,
)
from cerberank_models.convert.own_tokenizer import (
    MOST_TOKENS,
    check_pairs,
    own_length,
    plain_tokenizer,
    read_tokenizer,
)
from cerberank_models.convert.source import Source, find_source
from cerberank_models.convert.teacher_input import FILE, TeacherInput
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.first_stage.attach import write_alone
from cerberank_models.first_stage.late_interaction import SPECIAL, document_length, is_late_interaction
from cerberank_models.first_stage.sources import read_hugging_face
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.output import note

logger = logging.getLogger(__name__)

CARD = """# {name}

Imported from the Hugging Face cross-encoder `{source}` by `cerberank import`; the weights are unchanged.
Architecture {architecture}, {stages} stage(s), pairs of at most {length} tokens. Data, licence, intended use and
figures are those of the source: see its model card. Ranges of the int8 form were measured on {calibration}.
"""


def import_(
    source: str,
    out: Path,
    /,
    *,
    revision: str | None = None,
    name: str | None = None,
    max_length: Count | None = None,
    context: bool = False,
    precisions: Names = ("fp32", "int8"),
    calibrate: Path | None = None,
    opaque: bool = False,
    graph: str | None = None,
    prompt: str | None = None,
    end_with_stdin: Annotated[bool, Parameter(show=False)] = False,
) -> None:
    """Make a checkpoint from a Hugging Face cross-encoder, a decoder that reranks, or a ColBERT.

    Args:
        source: Folder or hub id of the model; a sequence classifier has one or two labels.
        out: Checkpoint folder to make.
        revision: Branch, tag or commit of a model on the hub (default: main).
        name: Name of the model (default: made from the last part of the source).
        max_length: Tokens of a pair, or of a ColBERT's candidate (default: the model's, at most 512).
        context: Read the previous and the next sentence as a third segment; not needed for a teacher's folder.
        precisions: ONNX forms to write beside the weights, separated by commas; "" for none.
        calibrate: File of questions to measure int8 ranges on, as `cerberank rank` reads them; labels are ignored.
        opaque: Import as one graph without exits and heads, as for families whose layers are not supported.
        graph: ONNX file of the source to use as the opaque graph, such as onnx/model.onnx.
        prompt: Text around a decoder's questions, if its name does not determine it (qwen3-reranker,
            mxbai-rerank-v2, zerank, or a JSON file).
        end_with_stdin: End when standard input ends.
    """
    if end_with_stdin:
        Thread(target=_end_with_stdin, daemon=True).start()
    logging.basicConfig(format="cerberank import: %(message)s")
    import_model(
        source,
        out,
        revision=revision,
        name=name,
        max_length=max_length,
        context=context,
        precisions=precisions,
        calibration=read_questions(calibrate) if calibrate else (),
        opaque=opaque,
        graph=graph,
        prompt=prompt,
    )
    made = read_checkpoint(out)
    forms = ", ".join(f"ONNX {each}" for each in made.precisions)
    note(
        f"cerberank import: {out} is {made.config.name}, {forms or 'weights alone'}; next: "
        f"CERBERANK_CHECKPOINT={out} cerberank serve, or cerberank store push {out} STORE"
    )


def _end_with_stdin() -> None:
    """End this process when standard input ends, because the process that started it has ended, even if by SIGKILL."""
    while os.read(0, 1024):  # not sys.stdin, whose lock would block Python's exit
        pass
    os._exit(1)


def import_model(
    source: str,
    out: Path,
    *,
    name: str | None = None,
    revision: str | None = None,
    max_length: Count | None = None,
    context: bool = False,
    precisions: tuple[str, ...] = ("fp32", "int8"),
    calibration: Sequence[tuple[str, Sequence[Candidate]]] = (),
    opaque: bool = False,
    graph: str | None = None,
    prompt: str | None = None,
) -> None:
    """Import the model `source` as the checkpoint `out`, after checking that all weights and pairs are read correctly.

    A ColBERT becomes a first stage without stages of pairs. A model of an unknown family becomes one opaque stage
    (`import_opaque`), as does any model with `opaque`, or with `graph`, the name of one of its files. A folder of
    `train teach` states the input of the teacher and its training data, and the checkpoint gets the same.

    Raises UnsupportedModelError for models that do not rank in one of these ways, SourceError if there is no model, and
    StoreError for a `name` that no model can have.
    """
    found = find_source(source, revision)
    name = found.name if name is None else check_model(name)
    check_source(found)
    described = read_config(found)
    if found.decodes:
        tokenizer = read_tokenizer(found, getattr(described, "vocab_size", None))
        length = own_length(tokenizer, described.max_position_embeddings)
        if max_length is not None and max_length > length:
            raise UnsupportedModelError(f"max_length {max_length} is more than the {length} tokens that {source} reads")
        import_decoder(
            found,
            out,
            described=described,
            tokenizer=tokenizer,
            name=name,
            max_length=_length(source, length, max_length),
            prompt=prompt,
        )
        return
    if is_late_interaction(found) and not (opaque or graph):
        _import_late_interaction(
            found,
            out,
            described=described,
            name=name,
            max_length=max_length,
            precisions=precisions,
            calibration=calibration,
        )
        return
    head = read_head(found, described)
    if head is not None:
        described.num_labels = head.labels
    if described.num_labels not in (1, 2):
        raise UnsupportedModelError(f"{source} has {described.num_labels} labels; a cross-encoder has one or two")
    check_prompt(found)
    tokenizer = read_tokenizer(found, getattr(described, "vocab_size", None))
    if reason := "as asked for" if opaque or graph else why_opaque(described):
        if calibration:
            raise ValueError("--calibrate has no meaning for an opaque network: its int8 measures no ranges")
        logger.warning("%s becomes one opaque stage without exits and heads: %s", source, reason)
        length = own_length(tokenizer, getattr(described, "max_position_embeddings", None) or MOST_TOKENS)
        if max_length is not None and max_length > length:
            raise UnsupportedModelError(f"max_length {max_length} is more than the {length} tokens that {source} reads")
        from cerberank_models.commands.import_opaque import import_opaque  # noqa: PLC0415 - always needs onnx

        import_opaque(
            found,
            out,
            described=described,
            tokenizer=tokenizer,
            name=name,
            encoding=_encoding(source, length, max_length, context=context),
            precisions=precisions,
            graph=graph,
            head=head,
        )
        return
    transformer = transformer_config(described)
    positions = transformer.max_positions - transformer.position_offset
    if max_length is not None and max_length > positions:
        raise UnsupportedModelError(f"max_length {max_length} is more than the {positions} positions of {source}")
    encoding = _encoding(source, own_length(tokenizer, positions), max_length, context=context)
    config = ranker_config(described, name=name, encoding=encoding, logits=described.num_labels, head=head)
    config = config.model_copy(update={"languages": found.languages})
    ranker = RankingNetwork(config).eval()
    network = read_network(found, head)
    load_weights(ranker, network.state_dict())
    pairs_alone = PairEncoder(
        plain_tokenizer(tokenizer),
        family=transformer.family,
        config=encoding.model_copy(update={"segments": 2}),
        type_vocab_size=transformer.type_vocab_size,
    )
    if encoding.segments == 2:  # with context, training defined the pairs
        check_pairs(tokenizer, pairs_alone, GOLDEN_TEXTS, max_length=encoding.max_length)
        wanted = own_scores(network, tokenizer, GOLDEN_TEXTS, longest=encoding.max_length)
        check_parity("imported", wanted, golden_scores(ranker, pairs_alone), PARITY["fp32"])
    check_differing(source, golden_scores(ranker, pairs_alone))
    export_checkpoint(
        ranker,
        plain_tokenizer(tokenizer),
        out,
        card=CARD.format(
            name=config.name,
            source=source,
            architecture=config.architecture,
            stages=len(config.stages),
            length=encoding.max_length,
            calibration=f"{len(calibration)} given questions" if calibration else "the golden texts alone",
        ),
        version=found.content()[:40],
        source=source,
        forms=Forms(precisions=precisions, calibration=calibration),
        files=found.run,
    )


def _import_late_interaction(
    source: Source,
    out: Path,
    *,
    described: Any,
    name: str,
    max_length: int | None,
    precisions: Sequence[str],
    calibration: Sequence[tuple[str, Sequence[Candidate]]],
) -> None:
    """Write the checkpoint `out` with a ColBERT as its only stage; candidates have at most `max_length` tokens.

    Raises UnsupportedModelError for settings that a first stage does not support, and ParityError if a graph's results
    differ too much.
    """
    transformer = transformer_config(described)
    room = transformer.max_positions - transformer.position_offset - SPECIAL
    own = min(document_length(source) or room, room)
    if max_length is not None and max_length > room:
        raise UnsupportedModelError(f"max_length {max_length} is more than the {room} tokens that {source.place} reads")
    encoder = read_hugging_face(source, candidate_length=_length(source.place, own, max_length))
    made = write_alone(
        encoder,
        out,
        name=name,
        source=source.place,
        version=source.content()[:40],
        precisions=precisions,
        languages=source.languages,
        calibration=calibration,
    )
    check_differing(source.place, [np.asarray(each.scores["fp32"]) for each in made.golden])


def check_prompt(source: Source) -> None:
    """Raise UnsupportedModelError for a model for which sentence-transformers adds a prompt before every question."""
    settings = source.optional_json(SENTENCE_TRANSFORMERS) or {}
    name = settings.get("default_prompt_name")
    if prompt := name and (settings.get("prompts") or {}).get(name):
        raise UnsupportedModelError(
            f"{source.place} reads the prompt {prompt!r} before every question ({SENTENCE_TRANSFORMERS}), which is not "
            "supported: its scores would not be its own"
        )


def _encoding(source: str, own: int, asked: int | None, *, context: bool) -> EncodingConfig:
    """The encoding of pairs for a model that reads `own` tokens, by the request `asked` or by a teacher's file."""
    teacher = TeacherInput(max_length=own, context=context)
    if (Path(source) / FILE).is_file():
        teacher = TeacherInput.read(source)
        if context and not teacher.context:
            raise UnsupportedModelError(f"{source} does not read context: its {FILE} says so")
    else:
        own = _length(source, own, asked)
    return teacher.model_copy(update={"max_length": asked or min(own, teacher.max_length)}).encoding()


def _length(source: str, own: int, asked: int | None) -> int:
    """The most tokens of a pair: `asked`, or else the model's number `own` up to the default limit."""
    if asked is None and own > MOST_TOKENS:
        logger.warning(
            "pairs are cut at %d of the %d tokens that %s reads; --max-length sets another number",
            MOST_TOKENS,
            own,
            source,
        )
        return MOST_TOKENS
    return asked or own

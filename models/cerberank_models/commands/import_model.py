"""`cerberank import`: a Hugging Face cross-encoder becomes a checkpoint that the service can serve."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from cerberank_models.commands.question_lines import read_questions
from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import Candidate
from cerberank_models.export.checkpoint import ParityError, export_checkpoint
from cerberank_models.importing.families import FAMILIES, UnsupportedModelError
from cerberank_models.importing.hugging_face import load_weights, ranker_config, transformer_config
from cerberank_models.importing.teacher_input import FILE, TeacherInput
from cerberank_models.network.ranker import Ranker

CARD = """# {name}

Imported from the Hugging Face cross-encoder `{source}` by `cerberank import`; the weights are unchanged.
Architecture {architecture}, {stages} stage(s), pairs of at most {length} tokens. Data, licence, intended use and
figures are those of the source: see its model card. Ranges of the int8 form were measured on {calibration}.
"""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(prog="cerberank import", description=__doc__)
    parser.add_argument(
        "source", help=f"path or hub id of a sequence classifier of a known family: {', '.join(FAMILIES)}"
    )
    parser.add_argument("out", type=Path, help="the checkpoint folder to make; must not exist")
    parser.add_argument("--name", help="model name (default: the last part of the source)")
    parser.add_argument("--max-length", type=int, help="tokens per pair (default: the model's, at most 512)")
    parser.add_argument(
        "--context",
        action="store_true",
        help="the previous and the next sentence are a third segment; a teacher's folder says so itself",
    )
    parser.add_argument(
        "--precisions", default="fp32,int8", help="ONNX forms to write beside the weights, comma-separated; '' for none"
    )
    parser.add_argument(
        "--calibrate", type=Path, help="questions to measure int8 ranges on, as `cerberank rank` reads them"
    )
    arguments = parser.parse_args(argv)
    try:
        import_model(
            arguments.source,
            arguments.out,
            name=arguments.name or Path(arguments.source).name,
            max_length=arguments.max_length,
            context=arguments.context,
            precisions=tuple(filter(None, arguments.precisions.split(","))),
            calibration=read_questions(arguments.calibrate) if arguments.calibrate else (),
        )
    except (UnsupportedModelError, ParityError, OSError, ValueError) as error:
        print(f"cerberank import: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def import_model(
    source: str,
    out: Path,
    *,
    name: str,
    max_length: int | None = None,
    context: bool = False,
    precisions: tuple[str, ...] = ("fp32", "int8"),
    calibration: Sequence[tuple[str, Sequence[Candidate]]] = (),
) -> None:
    """Read `source`, check that every weight finds its place, write the checkpoint `out`.

    A folder of `cerberank teach` says what the teacher reads, and the checkpoint reads the same. Raises
    UnsupportedModelError for models that are not one- or two-logit cross-encoders of a known family.
    """
    described: Any = AutoConfig.from_pretrained(source)
    if described.num_labels not in (1, 2):
        raise UnsupportedModelError(f"{source} has {described.num_labels} labels; a cross-encoder has one or two")
    network, loading = AutoModelForSequenceClassification.from_pretrained(source, output_loading_info=True)
    if missing := sorted(loading["missing_keys"]):
        raise UnsupportedModelError(f"{source} is no trained cross-encoder: it lacks {', '.join(missing)}")
    tokenizer = AutoTokenizer.from_pretrained(source)
    transformer = transformer_config(described)
    room = min(512, transformer.max_positions - transformer.position_offset)
    encoding = _encoding(source, min(max_length or 512, room), context=context, given=max_length is not None)
    config = ranker_config(
        described,
        name=name,
        encoding=encoding,
        logits=described.num_labels,
    )
    ranker = Ranker(config)
    load_weights(ranker, network.state_dict())
    backend = tokenizer.backend_tokenizer
    if not isinstance(backend, Tokenizer):
        raise UnsupportedModelError(f"{source} has no fast tokenizer (tokenizer.json)")
    export_checkpoint(
        ranker,
        backend,
        out,
        card=CARD.format(
            name=name,
            source=source,
            architecture=config.architecture,
            stages=len(config.stages),
            length=encoding.max_length,
            calibration=f"{len(calibration)} given questions" if calibration else "the golden texts alone",
        ),
        version=str(getattr(described, "_commit_hash", None) or "imported"),
        source=source,
        precisions=precisions,
        calibration=calibration,
    )


def _encoding(source: str, length: int, *, context: bool, given: bool) -> EncodingConfig:
    """How the checkpoint encodes pairs of at most `length` tokens; a teacher's length counts unless one is `given`."""
    if (Path(source) / FILE).is_file():
        teacher = TeacherInput.read(source)
        if context and not teacher.context:
            raise UnsupportedModelError(f"{source} does not read context: its {FILE} says so")
        return teacher.model_copy(
            update={"max_length": length if given else min(length, teacher.max_length)}
        ).encoding()
    return EncodingConfig(max_length=length, question_length=min(64, length // 2), segments=3 if context else 2)

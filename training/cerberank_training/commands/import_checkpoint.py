"""`cerberank import`: a checkpoint from a Hugging Face model that ranks."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from threading import Thread
from typing import Annotated

from cyclopts import Parameter

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import USUAL, ImportOptions
from cerberank_models.commands.values import DataSpec
from cerberank_models.convert.checkpoint import Questions
from cerberank_models.output import note


def import_(
    source: str,
    out: Path,
    /,
    *,
    options: ImportOptions = USUAL,
    int8_texts: DataSpec | None = None,
    end_with_stdin: Annotated[bool, Parameter(show=False)] = False,
) -> Path:
    """Make a checkpoint from a Hugging Face cross-encoder, a decoder that reranks, a ColBERT, or the authors' CERBERUS.

    Args:
        source: Folder or hub id of the model; a sequence classifier has one or two labels. A folder with
            cerberus_model.pt is a CERBERUS.
        out: Checkpoint folder to make.
        options: Options.
        int8_texts: Questions like yours to measure int8 ranges on: FORMAT:PATH, or a file as `cerberank rank` reads it
            (default: the golden texts, which is less exact).
        end_with_stdin: End when standard input ends.
    """
    if end_with_stdin:
        Thread(target=_end_with_stdin, daemon=True).start()
    logging.basicConfig(format="cerberank import: %(message)s")
    questions: Questions = ()
    if int8_texts is not None:
        from cerberank_training.runs.unlabelled import int8_questions  # noqa: PLC0415 - data need pyarrow

        questions = int8_questions(int8_texts)
    import_model(source, out, options, calibration=questions)
    checkpoint = read_checkpoint(out)
    forms = ", ".join(f"ONNX {each}" for each in checkpoint.precisions)
    following = f"; next: cerberank serve {out}, or cerberank store push {out} STORE"
    note(
        f"cerberank import: {out} is {checkpoint.config.name} {checkpoint.manifest.version}, {forms or 'weights alone'}"
        f"{'' if end_with_stdin else following}"
    )
    return out


def _end_with_stdin() -> None:
    """End this process when standard input ends, because the process that started it has ended, even if by SIGKILL."""
    while os.read(0, 1024):  # not sys.stdin, whose lock would block Python's exit
        pass
    os._exit(1)

"""`checkpoint first-stage`: a checkpoint gets a bi-encoder that ranks all candidates before any is read as a pair.

ENCODER is a bi-encoder of `cerberank train pairwise`, or a sentence-transformers model (a folder or a hub id) with mean
pooling, such as all-MiniLM-L6-v2, which is ranked by cosine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.question_lines import read_questions
from cerberank_models.convert.checkpoint import ParityError
from cerberank_models.first_stage.attach import attach
from cerberank_models.first_stage.sources import read_bi_encoder


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="cerberank checkpoint first-stage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", type=Path, help="a checkpoint folder without a first stage")
    parser.add_argument("encoder", help="a text ranker's folder, a sentence-transformers folder, or a hub id")
    parser.add_argument("out", type=Path, help="the checkpoint folder to make; must not exist")
    parser.add_argument("--alpha", type=float, default=0.8, help="share of the candidates that it drops (default: 0.8)")
    parser.add_argument("--precisions", help="ONNX graphs, comma-separated (default: the checkpoint's); '' for none")
    parser.add_argument("--calibrate", type=Path, help="questions to measure int8 ranges on, as `cerberank rank` reads")
    parser.add_argument("--candidate-length", type=int, default=128, help="tokens of a candidate (default: 128)")
    parser.add_argument("--version", help="of the new folder (default: the old one's with -first-stage)")
    arguments = parser.parse_args(argv)
    given = arguments.precisions
    try:
        encoder = read_bi_encoder(arguments.encoder, candidate_length=arguments.candidate_length)
        made = attach(
            read_checkpoint(arguments.checkpoint),
            encoder,
            arguments.out,
            source=Path(arguments.encoder).name,
            alpha=arguments.alpha,
            precisions=None if given is None else tuple(filter(None, given.split(","))),
            calibration=read_questions(arguments.calibrate) if arguments.calibrate else (),
            version=arguments.version,
        )
    except (ParityError, OSError, ValueError) as error:
        sys.stderr.write(f"cerberank checkpoint first-stage: {error}\n")
        return 1
    if encoder.trained_length is not None and encoder.trained_length < arguments.candidate_length:
        sys.stdout.write(
            f"Candidates are read up to {arguments.candidate_length} tokens, though {arguments.encoder} was trained on "
            f"{encoder.trained_length}; --candidate-length {encoder.trained_length} reads as many.\n"
        )
    schedule = ",".join(f"{ratio:g}" for ratio in made.config.schedule)
    sys.stdout.write(
        f"{arguments.out}: {made.config.name}@{made.manifest.version} drops {schedule}. Its first ratio was not "
        f"measured, and tuned schedules are gone: run `cerberank train tune {arguments.out} --data ... --out ...`\n"
    )
    return 0

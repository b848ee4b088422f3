"""The GPU benchmarks: measure one GPU in a single run of ten minutes, without data sets or a network.

Pieces run in the order of their worth, each for at most its own time. `gpu.json` and `gpu.md` in --out are rewritten
after every row. Pieces for which no time is left are listed as not run. If a piece fails, the others still run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cerberank_benchmarks.gpu import (
    capture,
    ceilings,
    faults,
    invariance,
    kernel,
    latency,
    peers,
    reference,
    served,
    table5,
    training,
)
from cerberank_benchmarks.gpu.lab import TINY, Findings, Lab, OutOfTimeError, Sizes, lab_for
from cerberank_benchmarks.gpu.record import PieceRecord, Record
from cerberank_benchmarks.machine import describe_gpu, describe_machine
from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.output import note, say


@dataclass(frozen=True, slots=True)
class Piece:
    """One measurement, which yields its rows and problems one by one."""

    text: str
    run: Callable[[Lab], Findings]
    seconds: float
    """The time after which the piece is cut."""


PIECES: dict[str, Piece] = {
    "ceilings": Piece(ceilings.TEXT, ceilings.run, 20),
    "reference": Piece(reference.TEXT, reference.run, 60),
    "kernel": Piece(kernel.TEXT, kernel.run, 30),
    "invariance": Piece(invariance.TEXT, invariance.run, 30),
    "capture": Piece(capture.TEXT, capture.run, 30),
    "latency": Piece(latency.TEXT, latency.run, 75),
    "peers": Piece(peers.TEXT, peers.run, 75),
    "served": Piece(served.TEXT, served.run, 130),
    "training": Piece(training.TEXT, training.run, 90),
    "table5": Piece(table5.TEXT, table5.run, 60),
    "faults": Piece(faults.TEXT, faults.run, 60),
    "table5-paper": Piece(table5.PAPER, table5.paper, 60),
}
"""The pieces by name, in the order in which they run."""


def main(argv: list[str]) -> int:
    """Run the pieces; returns 1 if a piece failed or found a problem, 2 for a wrong command line."""
    arguments = _parser().parse_args(argv)
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        note(f"cerberank_benchmarks gpu: PyTorch {torch.__version__} finds no GPU here")
        return 2
    if not arguments.tokenizer.is_file():
        note(f"cerberank_benchmarks gpu: there is no {arguments.tokenizer}; name one by --tokenizer")
        return 2
    if arguments.tiny:
        torch.set_num_threads(1)  # with tiny networks, several threads would only wait for each other
    with tempfile.TemporaryDirectory() as scratch:
        lab = lab_for(
            arguments.device,
            precision=arguments.precision,
            sizes=TINY if arguments.tiny else Sizes(),
            scratch=Path(scratch),
            tokenizer=arguments.tokenizer,
            end=time.perf_counter() + 60 * arguments.minutes,
            seed=arguments.seed,
        )
        record = measure(lab, arguments.pieces, arguments.out)
        log = Path(scratch) / served.SERVER_LOG
        if log.is_file() and (printed := log.read_bytes()):
            write_bytes(arguments.out / served.SERVER_LOG, printed)
    say(record.markdown())
    return 1 if record.failed else 0


def measure(lab: Lab, names: Sequence[str], out: Path) -> Record:
    """Run the pieces `names` and write their record to the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    settings = {"device": lab.device, "precision": lab.precision, "sizes": "tiny" if lab.sizes == TINY else "full"}
    machine = describe_machine() | describe_gpu(lab.device)
    records = {name: PieceRecord(name=name, text=piece.text, reason="not asked for") for name, piece in PIECES.items()}
    record = Record(folder=out, machine=machine, settings=settings, pieces=list(records.values()))
    for name in _ordered(names):
        _run(lab, PIECES[name], records[name], record)
    record.write()
    return record


def _run(lab: Lab, piece: Piece, result: PieceRecord, record: Record) -> None:
    """Run a piece until its own deadline or that of all, and write the record after every row."""
    if lab.remaining <= 0:
        result.reason = "out of time"
        return
    note(f"{result.name} ...")
    result.status, result.reason, started = "running", "", lab.clock()
    limited = replace(lab, end=min(lab.end, started + piece.seconds * lab.sizes.limit_factor))
    try:
        # Closing the generator ends processes that the piece has started, such as a server.
        with closing(piece.run(limited)) as findings:
            for finding in findings:
                result.add(finding)
                record.write()
                limited.check_time()
        result.status = "ran"
    except OutOfTimeError:
        result.status, result.reason = "cut", "out of time"
    except Exception as error:  # the other pieces must still run
        result.status, result.reason = "failed", f"{type(error).__name__}: {error}"
        if limited.remaining <= 0:  # the error may come from a process that was killed at the deadline
            result.status, result.reason = "cut", f"out of time: {result.reason}"
    result.seconds = lab.clock() - started
    lab.taken_bytes()  # frees the piece's memory, which processes of other pieces may need
    record.write()
    note(f"{result.name}: {result.status} {result.reason} ({result.seconds:.1f} s)")


def _ordered(names: Sequence[str]) -> list[str]:
    return [name for name in PIECES if name in names]


def _pieces(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in PIECES]:
        raise argparse.ArgumentTypeError(f"there is no piece {', '.join(unknown)}; there are {', '.join(PIECES)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cerberank_benchmarks gpu", description=__doc__)
    default: dict[str, Any] = {"pieces": list(PIECES), "tokenizer": default_checkpoint() / "tokenizer.json"}
    parser.set_defaults(**default)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder of gpu.json and gpu.md")
    parser.add_argument("--minutes", type=float, default=9.0, help="pieces begin and go on until then; default 9")
    parser.add_argument("--pieces", type=_pieces, metavar="NAME,NAME", help=", ".join(PIECES))
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try the pieces without a GPU")
    parser.add_argument("--precision", choices=("fp16", "bf16", "fp32"), help="default: fp16 on a GPU, else fp32")
    parser.add_argument("--tiny", action="store_true", help="tiny networks: no figure counts")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json of served networks; default: the bundled one")
    parser.add_argument("--seed", type=int, default=0)
    return parser

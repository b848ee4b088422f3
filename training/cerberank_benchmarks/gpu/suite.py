"""The GPU benchmarks: measure one GPU in a single run of limited time, without data sets or a network.

`gpu.json` and `gpu.md` in --out are rewritten after every row. Pieces for which no time is left are listed as not run.
If a piece fails, the others still run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from cerberank_benchmarks.gpu import (
    ceilings,
    encode,
    faults,
    graphs,
    kernel,
    lock,
    peers,
    scores,
    served,
    shapes,
    steps,
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


PIECES: dict[str, Piece] = {
    "ceilings": Piece(ceilings.TEXT, ceilings.run),
    "kernel": Piece(kernel.TEXT, kernel.run),
    "parity": Piece(scores.PARITY, scores.parity),
    "invariance": Piece(scores.INVARIANCE, scores.invariance),
    "graphs": Piece(graphs.GRAPHS, graphs.graphs),
    "steps": Piece(steps.TEXT, steps.run),
    "table5": Piece(table5.TEXT, table5.run),
    "peers": Piece(peers.TEXT, peers.run),
    "shapes": Piece(shapes.TEXT, shapes.run),
    "lock": Piece(lock.TEXT, lock.run),
    "encode": Piece(encode.TEXT, encode.run),
    "fusion": Piece(graphs.FUSION, graphs.fusion),
    "served": Piece(served.TEXT, served.run),
    "faults": Piece(faults.TEXT, faults.run),
    "training": Piece(training.TEXT, training.run),
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
        record = measure(lab, arguments.pieces, arguments.out, together=4 if arguments.tiny else 1)
        log = Path(scratch) / served.SERVER_LOG
        if log.is_file() and (printed := log.read_bytes()):
            write_bytes(arguments.out / served.SERVER_LOG, printed)
    say(record.markdown())
    return 1 if record.failed else 0


def measure(lab: Lab, names: Sequence[str], out: Path, *, together: int = 1) -> Record:
    """Run the pieces `names` and write their record to the folder `out`.

    With `together` above 1, that many pieces run at the same time, the last ones first. This is for tiny sizes, whose
    times are meaningless anyway.
    """
    out.mkdir(parents=True, exist_ok=True)
    settings = {"device": lab.device, "precision": lab.precision, "sizes": "tiny" if together > 1 else "full"}
    machine = describe_machine() | describe_gpu(lab.device)
    records = {name: PieceRecord(name=name, text=piece.text, reason="not asked for") for name, piece in PIECES.items()}
    record = Record(folder=out, machine=machine, settings=settings, pieces=list(records.values()))
    run = _Run(lab, record, Lock())
    if together == 1:
        for name in _ordered(names):
            run(records[name])
    else:
        with ThreadPoolExecutor(together) as pool:
            list(pool.map(run, [records[name] for name in reversed(_ordered(names))]))
    record.write()
    return record


@dataclass(frozen=True, slots=True)
class _Run:
    lab: Lab
    record: Record
    lock: Lock

    def __call__(self, piece: PieceRecord) -> None:
        if self.lab.remaining <= 0:
            piece.reason = "out of time"
            return
        note(f"{piece.name} ...")
        piece.status = "running"
        piece.reason = ""
        started = self.lab.clock()
        try:
            self._collect(piece)
            piece.status = "ran"
        except OutOfTimeError:
            piece.status = "cut"
            piece.reason = "out of time"
        except Exception as error:  # the other pieces must still run
            piece.status = "failed"
            piece.reason = f"{type(error).__name__}: {error}"
            if self.lab.remaining <= 0:  # the error may come from a process that was killed at the deadline
                piece.status = "cut"
                piece.reason = f"out of time: {piece.reason}"
        piece.seconds = self.lab.clock() - started
        self.lab.taken_bytes()  # frees the piece's memory, which processes of other pieces may need
        with self.lock:
            self.record.write()
        note(f"{piece.name}: {piece.status} {piece.reason} ({piece.seconds:.1f} s)")

    def _collect(self, piece: PieceRecord) -> None:
        # Closing the generator ends processes that the piece has started, such as a server.
        with closing(PIECES[piece.name].run(self.lab)) as findings:
            for finding in findings:
                piece.add(finding)
                with self.lock:
                    self.record.write()
                self.lab.check_time()


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
    parser.add_argument("--minutes", type=float, default=25.0, help="pieces begin and go on until then; default 25")
    parser.add_argument("--pieces", type=_pieces, metavar="NAME,NAME", help=", ".join(PIECES))
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try the pieces without a GPU")
    parser.add_argument("--precision", choices=("fp16", "bf16", "fp32"), help="default: fp16 on a GPU, else fp32")
    parser.add_argument("--tiny", action="store_true", help="tiny networks, four pieces at a time: no figure counts")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json of served networks; default: the bundled one")
    parser.add_argument("--seed", type=int, default=0)
    return parser

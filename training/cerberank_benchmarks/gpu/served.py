"""Piece `served`: loads the real `cerberank serve` with clients in other processes. Other pieces use its server."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from cerberank_benchmarks.clients.processes import Job, Outcome, ask_from_processes
from cerberank_benchmarks.clients.server import Server, ServerSettings, cerberank_server
from cerberank_benchmarks.gpu.lab import Findings, Lab, Problem, Row
from cerberank_benchmarks.gpu.networks import THREE_HEADS, Shape, random_ranker
from cerberank_benchmarks.workload import WORDS
from cerberank_models.convert.checkpoint import Forms, export_checkpoint

TEXT = (
    "`cerberank serve` with random weights, and closed-loop clients on the same machine. A pair has as many tokens as "
    "in the other pieces. cold: no text is sent twice; cached: four requests are sent again and again, and the "
    "service may keep their tokens (CERBERANK_TOKEN_CACHE_BYTES), never their scores. Encode and compute are medians "
    "of the service's own times; client processes near one processor each limit the rate, not the service."
)
QUESTION_WORDS = 8
SPECIAL_TOKENS = 3
TOKEN_CACHE = 1 << 30
OUT_OF_MEMORY = "cerberank_out_of_memory_total"
"""The metric that counts batches that did not fit into memory."""
ENOUGH = 100
"""Number of requests below which p99 is left out, because it would be the maximum."""
SERVER_LOG = "server.log"
"""The servers' log in the lab's scratch folder; it is copied beside `gpu.json` unless it is empty."""


def run(lab: Lab) -> Findings:
    """Rows for each number of clients and candidates, and kind of texts."""
    shape = THREE_HEADS
    checkpoint = served_checkpoint(lab, shape)
    started = lab.clock()
    with service(lab, checkpoint) as server:
        # What the service has chosen for itself.
        used: int = server.client.get("/info").raise_for_status().json()["tokenization_workers"]
        named: Row = {"network": shape.name, "encode workers": used}
        yield {
            **named,
            "start, s": lab.clock() - started,
            "tokens of a step": counted(server, "cerberank_step_tokens"),
            "token cache, MB": TOKEN_CACHE / 1e6,
        }
        # A row for each load.
        for clients, candidates, repeated in lab.sizes.loads:
            outcome, processes = ask_from_processes(
                job(lab, server, clients=clients, candidates=candidates, repeated=repeated),
                patience=max(1.0, lab.remaining),
            )
            texts = "cached" if repeated else "cold"
            row: Row = {**named, "clients": clients, "candidates": candidates, "texts": texts}
            yield {**row, **_figures(outcome, candidates, processes)}
            if outcome.failed:
                yield Problem(f"{shape.name}, {clients} x {candidates}: {outcome.failed} requests failed")
        # What all loads together have cost.
        hits = counted(server, "cerberank_graph_hits_total")
        yield {
            **named,
            "graph hits": hits,
            "graph misses": counted(server, "cerberank_graph_misses_total"),
            "padding tokens": counted(server, "cerberank_padding_tokens_total"),
            "out of memory": counted(server, OUT_OF_MEMORY),
        }
        if lab.on_gpu and not hits:
            yield Problem(f"{shape.name}: no step ran as a CUDA graph; {SERVER_LOG} has the reason")


def served_checkpoint(lab: Lab, shape: Shape) -> Path:
    """A checkpoint of the shape with random weights."""
    folder = lab.scratch / f"served {shape.name}"
    with suppress(FileExistsError):  # another piece may have written the same checkpoint
        export_checkpoint(
            random_ranker(lab, shape),
            Tokenizer.from_file(str(lab.tokenizer)),
            folder,
            card=f"# {shape.name}\n\nRandom weights, to measure time with.\n",
            version="random",
            source="python -m cerberank_benchmarks gpu",
            forms=Forms(precisions=()),
        )
    return folder


@contextmanager
def service(lab: Lab, checkpoint: Path, **settings: str | float | None) -> Iterator[Server]:
    """Run `cerberank serve` on the lab's device; its output is appended to `SERVER_LOG` when it ends."""
    chosen: ServerSettings = {
        "backend": "torch",
        "precision": lab.precision,
        "device": lab.device,
        "threads": torch.get_num_threads(),  # on a processor, as many as this process uses
        "token_cache_bytes": TOKEN_CACHE,
        "log_level": "warning",
        **settings,
    }
    folder = Path(tempfile.mkdtemp(dir=lab.scratch))
    try:
        with cerberank_server(checkpoint, folder, chosen, remaining=lambda: lab.remaining) as server:
            yield server
    finally:
        with (lab.scratch / SERVER_LOG).open("ab") as log:
            log.write((folder / "cerberank.log").read_bytes())


def counted(server: Server, metric: str) -> int:
    """The sum of a metric's samples; 0 without any."""
    lines = server.client.get("/metrics").raise_for_status().text.splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith((f"{metric} ", f"{metric}{{")))


def job(lab: Lab, server: Server, *, clients: int, candidates: int, repeated: bool) -> Job:
    """A job of clients of `server`, whose pairs have the lab's number of tokens; other jobs have other cold texts."""
    return Job(
        port=server.client.base_url.port or 0,
        clients=clients,
        candidates=candidates,
        seconds=lab.sizes.served_seconds,
        repeated=repeated,
        vocabulary=tuple(dict.fromkeys(WORDS)),
        question_words=QUESTION_WORDS,
        candidate_words=lab.sizes.tokens - QUESTION_WORDS - SPECIAL_TOKENS,
        seed=random.Random(f"{lab.seed} {clients} {candidates} {repeated}").randrange(1 << 30),
    )


def _figures(outcome: Outcome, candidates: int, processes: int) -> Row:
    seconds = outcome.ended - outcome.began
    if not outcome.seconds:
        return {"requests": 0}
    return {
        "requests": len(outcome.seconds),
        "pairs/s": candidates * len(outcome.seconds) / seconds,
        "p50 ms": 1000 * float(np.quantile(outcome.seconds, 0.5)),
        "p99 ms": 1000 * float(np.quantile(outcome.seconds, 0.99)) if len(outcome.seconds) >= ENOUGH else "",
        "encode ms": float(np.median(outcome.encode_ms)),
        "compute ms": float(np.median(outcome.compute_ms)),
        "client processes": processes,
        "processors of a client process": outcome.processor_seconds / seconds / processes,
    }

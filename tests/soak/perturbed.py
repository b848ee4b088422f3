"""A version that ranks a little differently: the same network with noise on the weights of its last outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, write_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.rank import rank_pairs
from cerberank_models.windows import AS_SERVED

PRECISION = "int8"


def perturb(checkpoint: Checkpoint, path: Path, *, version: str, noise: float, seed: int = 0) -> Checkpoint:
    """Write it to the new folder `path`; `noise` is relative to the weights' own spread. Its golden scores are true."""
    rng = np.random.default_rng(seed)
    graphs = checkpoint.stage_graphs(PRECISION)
    model = onnx.load(graphs[-1])
    for tensor in model.graph.initializer:
        if tensor.name.endswith("classifier.output.weight"):
            weights = numpy_helper.to_array(tensor)
            changed = weights + noise * weights.std() * rng.standard_normal(weights.shape)
            tensor.CopyFrom(numpy_helper.from_array(changed.astype(weights.dtype), tensor.name))
    last = path.with_suffix(".onnx")
    onnx.save(model, last)
    backend, encoder = OnnxBackend([*graphs[:-1], last], checkpoint.config), checkpoint.encoder()
    golden = []
    for question in checkpoint.golden:
        candidates = [Candidate(text=c.text, previous=c.previous, next=c.next) for c in question.candidates]
        keep_all = backend.config.drop_policy(0.0)
        scores = rank_pairs(backend, encoder.encode(question.question, candidates), keep_all).scores
        tolerance = {PRECISION: question.tolerance[PRECISION]}
        golden.append(question.model_copy(update={"scores": {PRECISION: tuple(scores)}, "tolerance": tolerance}))
    files = {
        name: checkpoint.path / name for name in checkpoint.manifest.files if name.startswith(f"onnx/{PRECISION}/")
    }
    return write_checkpoint(
        path,
        config=checkpoint.config,
        tokenizer=(checkpoint.path / "tokenizer.json").read_bytes(),
        card="# perturbed\n",
        version=version,
        source=f"{checkpoint.manifest.source}, perturbed by {noise:g}",
        files=files | {f"onnx/{PRECISION}/{graphs[-1].name}": last},
        golden=golden,
    )


def rankings(checkpoint: Checkpoint, questions: list[tuple[str, list[str]]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Order and scores of each question, without a service."""
    backend, encoder = open_backend(checkpoint, precision=PRECISION), checkpoint.encoder()
    found = []
    for question, texts in questions:
        candidates = [Candidate(text=text) for text in texts]
        ranking = rank_pairs(backend, encoder.encode(question, candidates, windowing=AS_SERVED))
        found.append((ranking.order, ranking.scores))
    return found

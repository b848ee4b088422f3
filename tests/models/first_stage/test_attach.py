"""A checkpoint with a first stage is that checkpoint, with a stage before its others that computes what it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.first_stages import ENCODER, attached, ranker_of, without
from tests.tiny import bert_tokenizer

from cerberank_models.backends.registry import BACKENDS
from cerberank_models.checkpoint.first_stage_files import SCORER, TOKENIZER, encoder_graph, files_to_copy
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError, copy_checkpoint, read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.convert.checkpoint import ParityError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.encoding import Candidate
from cerberank_models.first_stage import attach as attaching
from cerberank_models.first_stage import bi_encoders
from cerberank_models.first_stage.onnx_encoder import OnnxEncoder
from cerberank_models.first_stage.opening import (
    check_first_stage,
    open_encoder,
    open_first_stage,
    open_scorer,
    open_vector_backend,
    read_golden,
)
from cerberank_models.golden import GoldenMismatchError

QUESTION, TEXTS = GOLDEN_TEXTS[0]


def test_the_pairs_stages_are_as_they_were(plain: Checkpoint, checkpoint: Checkpoint) -> None:
    """Files, golden questions and the schedule's end are kept; the id, alpha and the card are new."""
    for name, digest in plain.manifest.files.items():
        if name not in ("config.json", "README.md"):
            assert checkpoint.manifest.files[name] == digest
    first = checkpoint.config.first_stage
    assert first.encoder not in (ENCODER, "")
    assert first.encoding.question_part == checkpoint.config.encoding.question_part == "end"
    assert checkpoint.config.schedule == (0.5, *plain.config.schedule)
    assert checkpoint.config.scored_stages == len(plain.config.stages) + 1
    assert f"`{first.encoder}`" in (checkpoint.path / "README.md").read_text()
    assert checkpoint.golden == plain.golden


@pytest.mark.parametrize(
    ("kind", "precision"), [("torch", "fp32"), ("onnx", "fp32"), ("onnx", "int8"), ("torch", "bf16")]
)
def test_every_form_passes_the_golden_questions(kind: str, precision: str, checkpoint: Checkpoint) -> None:
    """The backends open by kind and precision, and reproduce their scores; other vectors do not pass."""
    first = open_first_stage(checkpoint, kind=kind, precision=precision)
    assert first.backend.precision == precision
    pauses: list[None] = []
    check_first_stage(first, checkpoint, pause=lambda: pauses.append(None))
    assert len(pauses) == len(GOLDEN_TEXTS)

    class Other:
        config = first.config
        precision = first.backend.precision

        def encode(self, texts: object) -> list[np.ndarray]:
            return [-vector for vector in first.backend.encode(texts)]

    with pytest.raises(GoldenMismatchError, match=r"scores differ from the golden ones"):
        check_first_stage(replace(first, backend=Other()), checkpoint)


def test_a_precision_without_scores_is_refused(checkpoint: Checkpoint) -> None:
    """Nothing recorded means that nothing can be checked."""
    first = open_first_stage(checkpoint, precision="fp32")
    unknown = replace(first, backend=SimpleNamespace(precision="int4", config=first.config))
    with pytest.raises(GoldenMismatchError, match="no int4 scores"):
        check_first_stage(unknown, checkpoint)


def test_onnx_vectors_are_pytorchs(checkpoint: Checkpoint) -> None:
    """fp32 agrees whatever the batch, on one thread and on several; an empty batch gives nothing."""
    texts = open_encoder(checkpoint).candidates([*TEXTS, "", "b"])
    expected = np.stack(open_vector_backend(checkpoint, kind="torch").encode(texts)).astype(np.float32)
    for threads in (1, 3):
        backend = open_vector_backend(checkpoint, kind="onnx", precision="fp32", threads=threads)
        assert isinstance(backend, OnnxEncoder)
        assert np.stack(backend.encode(texts)).astype(np.float32) == pytest.approx(expected, abs=1e-2)
        assert list(backend.encode(texts.select(np.array([], dtype=np.int64)))) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "has_weights", "precisions"), [("dot", False, ["int8"]), ("tr-colbert", True, ["fp32", "int8"])]
)
def test_other_shapes_can_be_attached(
    name: str, has_weights: bool, precisions: list[str], with_first_stage: Callable[[str], Checkpoint]
) -> None:
    """A cosine has no weights of its own, ColBERT has token vectors: they pass the gate, and serve."""
    made = with_first_stage(name)
    assert (SCORER in made.manifest.files) == has_weights
    for precision in precisions:
        check_first_stage(open_first_stage(made, precision=precision), made)


@pytest.mark.slow
def test_int8_measures_its_ranges_on_given_texts(checkpoint: Checkpoint, plain: Checkpoint, tmp_path: Path) -> None:
    """Calibration changes the graph."""
    calibration = [("how tall is it ?", [Candidate(text=text) for text in TEXTS])]
    one = attached(plain, tmp_path / "one", precisions=("int8",), calibration=calibration)
    graph = encoder_graph("int8")
    assert one.manifest.files[graph] != checkpoint.manifest.files[graph]


def test_a_form_that_differs_is_not_written(
    checkpoint: Checkpoint, plain: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate stops it, and no folder is left."""
    form = open_vector_backend(checkpoint, kind="onnx", precision="int8")
    monkeypatch.setattr(attaching, "export_encoder", lambda *_, **__: form)
    monkeypatch.setattr(attaching, "PARITY", {"int8": 1e-9})
    with pytest.raises(ParityError, match="int8 scores differ"):
        attached(plain, tmp_path / "out", precisions=("int8",))
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_attached_is_refused(checkpoint: Checkpoint, plain: Checkpoint, tmp_path: Path) -> None:
    """A second first stage, an existing folder, an unknown precision."""
    with pytest.raises(CheckpointError, match="has a first stage already"):
        attached(checkpoint, tmp_path / "out")
    with pytest.raises(FileExistsError):
        attached(plain, checkpoint.path)
    with pytest.raises(ValueError, match="unknown precision int4"):
        attached(plain, tmp_path / "out", precisions=("int4",))


def test_the_encoder_id_covers_what_vectors_depend_on() -> None:
    """Weights, lengths, tokenizer and the tokens of a mean change it; the rankers' weights, and names, do not."""

    def encoder(*, seed: int = 0, length: int = 16, added: str = "", **changes: object) -> str:
        ranker = ranker_of({"first_ranker": "residual", "token_ranker": "twin"}, seed=seed)
        ranker.config = ranker.config.model_copy(update=changes)
        for name, value in ranker.named_parameters():
            if changes and "ranker." in name:
                torch.nn.init.ones_(value)
        tokenizer = bert_tokenizer()
        tokenizer.add_tokens([added] if added else [])
        return bi_encoders.bi_encoder(ranker, tokenizer, candidate_length=length).network.config.encoder

    part = ranker_of({"token_ranker": "dot"}).config.encoding.model_copy(update={"question_part": "end"})
    assert encoder(name="other", encoder="1" * 64) == encoder()
    assert encoder(encoding=part) == encoder(encoding=part.model_copy(update={"question_part": "start"}))
    assert len({encoder(), encoder(seed=1), encoder(length=15), encoder(added="new"), encoder(mean="text")}) == 5


@pytest.mark.parametrize("name", [TOKENIZER, SCORER, "first-stage/golden.jsonl"])
def test_a_missing_file_is_named(name: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    """The config states a first stage, so its files must be there."""
    with pytest.raises(CheckpointError, match=f"but lacks {name}"):
        read_checkpoint(without(checkpoint, tmp_path / "copy", name))


def test_files_without_a_config_are_refused(checkpoint: Checkpoint, plain: Checkpoint, tmp_path: Path) -> None:
    """The other way round: files that no config states, and a surplus one; a graph is looked into."""
    files = {TOKENIZER: checkpoint.path / TOKENIZER}
    with pytest.raises(CheckpointError, match=r"its config.json has no first_stage"):
        revise_checkpoint(plain, tmp_path / "one", version="2", files=files)
    with pytest.raises(CheckpointError, match="no first_stage of this shape reads"):
        revise_checkpoint(checkpoint, tmp_path / "two", version="2", files={"first-stage/x": b""})
    with pytest.raises(CheckpointError, match="is not an ONNX graph"):
        revise_checkpoint(checkpoint, tmp_path / "three", version="2", files={encoder_graph("fp32"): b"x"})


def test_rewriting_keeps_it(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Copies and revisions have every file; what an export keeps depends on its precisions and weights."""
    copied = copy_checkpoint(checkpoint.path, tmp_path / "copy")
    revised = revise_checkpoint(checkpoint, tmp_path / "revised", version="2")
    first = {name for name in checkpoint.manifest.files if name.startswith("first-stage/")}
    assert first < set(copied.manifest.files) & set(revised.manifest.files)
    names = checkpoint.manifest.files
    remaining = files_to_copy(checkpoint.path, names, precisions=["int8"], weights=False)
    assert set(remaining) == first - {encoder_graph("fp32"), "first-stage/model.safetensors"}
    with pytest.raises(CheckpointError, match="no graph in fp16"):
        files_to_copy(checkpoint.path, names, precisions=["fp16"], weights=True)
    with pytest.raises(CheckpointError, match="neither weights nor a graph"):
        files_to_copy(checkpoint.path, names, precisions=[], weights=False)


def test_its_files_count_as_memory(checkpoint: Checkpoint) -> None:
    """Both backends' estimates take in the first stage's file of the precision."""
    names = list(checkpoint.manifest.files)
    assert encoder_graph("int8") in BACKENDS["onnx"].files(names, "int8")
    assert encoder_graph("fp32") not in BACKENDS["onnx"].files(names, "int8")
    assert "first-stage/model.safetensors" in BACKENDS["torch"].files(names, "fp16")


def test_damaged_files_are_refused(checkpoint: Checkpoint, plain: Checkpoint, tmp_path: Path) -> None:
    """A tokenizer, weights or golden questions that are not, and a checkpoint without a first stage."""

    def revised(name: str, content: bytes) -> Checkpoint:
        return revise_checkpoint(
            checkpoint, tmp_path / str(len(list(tmp_path.iterdir()))), version="2", files={name: content}
        )

    with pytest.raises(CheckpointError, match=r"tokenizer.json cannot be used"):
        open_encoder(revised(TOKENIZER, b"{}"))
    with pytest.raises(CheckpointError, match=r"scorer.safetensors cannot be used"):
        open_scorer(revised(SCORER, b"x"))
    with pytest.raises(CheckpointError, match=r"golden.jsonl: "):
        read_golden(revised("first-stage/golden.jsonl", b"{}"))
    with pytest.raises(CheckpointError, match="holds no question"):
        read_golden(revised("first-stage/golden.jsonl", b"\n"))
    with pytest.raises(CheckpointError, match="has no first stage"):
        open_vector_backend(plain)
    remaining = without(checkpoint, tmp_path / "graphs", "first-stage/model.safetensors")
    with pytest.raises(CheckpointError, match="only its ONNX graph"):
        open_vector_backend(read_checkpoint(remaining), kind="torch")
    bare = without(checkpoint, tmp_path / "weights", encoder_graph("int8"))
    with pytest.raises(CheckpointError, match=r"has no first-stage/onnx/int8/encoder.onnx"):
        open_vector_backend(read_checkpoint(bare), kind="onnx", precision="int8")


def test_scores_do_not_depend_on_the_other_texts(checkpoint: Checkpoint) -> None:
    """A candidate alone scores what it scores among others, within fp16's rounding of its vector."""
    first = open_first_stage(checkpoint, precision="fp32")
    together = first.compute(first.read(QUESTION, TEXTS))
    alone = [first.compute(first.read(QUESTION, [text]))[0] for text in TEXTS]
    assert together == pytest.approx(alone, abs=1e-2)

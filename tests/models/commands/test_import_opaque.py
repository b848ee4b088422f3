from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tests.opaque import save_deberta, save_mpnet
from tests.program import program

from cerberank_models.backends.batching import BucketRule
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Scores
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError, read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.convert import opaque
from cerberank_models.convert.checkpoint import PARITY, ParityError
from cerberank_models.encoding import Candidate
from cerberank_models.golden import check_golden
from cerberank_models.rank_pairs import rank_pairs

main = program("import")

QUESTION = "how tall is the tower ?"
TEXTS = ["330 metres", "", "it was built in paris . " * 20, "a", "what do bees make honey from", "the tower " * 9]
PARITY_BOUND = 1e-5
"""The promise for fp32; float32 itself leaves less than a tenth of it in these two layers."""


def own_scores(source: Path, texts: list[str]) -> Scores:
    """The scores of transformers in one padded batch of its own tokenizer: sigmoid, or the second's softmax."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    pairs = tokenizer(
        [QUESTION] * len(texts),
        texts,
        padding=True,
        truncation="longest_first",
        max_length=64,
        return_tensors="pt",
    )
    with torch.no_grad():
        logits = model(**pairs).logits.double()
    scores = logits.sigmoid()[:, 0] if logits.shape[1] == 1 else logits.softmax(dim=1)[:, 1]
    return np.asarray(scores.numpy())


def scores_of(checkpoint: Checkpoint, texts: list[str], precision: str = "fp32", *, together: bool = True) -> Scores:
    """The scores of the pairs in one padded batch, or of each in its own."""
    rule = BucketRule(overhead=1 << 20 if together else 0)
    backend = OnnxBackend(
        checkpoint.stage_graphs(precision), checkpoint.config, precision=precision, threads=1, buckets=rule
    )
    encoder = checkpoint.encoder()
    groups = [texts] if together else [[text] for text in texts]
    return np.concatenate(
        [
            rank_pairs(backend, encoder.encode(QUESTION, [Candidate(text=text) for text in group])).scores
            for group in groups
        ]
    )


@pytest.fixture(scope="module")
def deberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a DeBERTa as transformers writes it, and the checkpoint `out` that is made of it."""
    folder = tmp_path_factory.mktemp("deberta")
    save_deberta(folder / "source")
    assert main([str(folder / "source"), str(folder / "out"), "--name", "deberta"]) == 0
    return folder


def test_an_opaque_deberta_gives_its_own_scores(deberta: Path) -> None:
    """fp32 as transformers, in padded batches as alone; int8 within its gate; the checkpoint says what it is."""
    checkpoint = read_checkpoint(deberta / "out")
    assert (str(checkpoint.config.architecture), len(checkpoint.config.stages)) == ("B2 0H0", 1)
    assert (checkpoint.config.transformer.family, checkpoint.weights) == ("opaque", None)
    expected, got = own_scores(deberta / "source", TEXTS), scores_of(checkpoint, TEXTS)
    assert np.abs(got - expected).max() <= PARITY_BOUND
    assert np.abs(got - scores_of(checkpoint, TEXTS, together=False)).max() <= PARITY_BOUND
    assert np.ptp(got) > 1000 * PARITY_BOUND
    assert 0 < np.abs(scores_of(checkpoint, TEXTS, "int8") - expected).max() <= PARITY["int8"]
    for precision in ("fp32", "int8"):
        check_golden(open_backend(checkpoint, precision=precision), checkpoint, precision)
    card = (checkpoint.path / "README.md").read_text()
    assert "`deberta-v2`" in card
    assert "its own forward" in card


def test_int8_beyond_its_gate_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """fp32 alone, and a line says it; int8 alone is an error. The service's default, int8, names what there is."""
    monkeypatch.setattr(opaque, "PARITY", {**PARITY, "int8": 1e-7})
    source = save_mpnet(tmp_path / "source")
    with pytest.raises(ParityError, match="import it in fp32"):
        import_model(str(source), tmp_path / "none", ImportOptions(forms=("int8",), opaque=True))
    assert not (tmp_path / "none").exists()
    import_model(str(source), tmp_path / "out", ImportOptions(opaque=True))
    assert "only fp32 is written" in caplog.text
    checkpoint = read_checkpoint(tmp_path / "out")
    assert checkpoint.precisions == ("fp32",)
    assert "there is no int8 form" in (checkpoint.path / "README.md").read_text()
    with pytest.raises(CheckpointError, match=r"it has: fp32\. An opaque network gets no others"):
        open_backend(checkpoint, precision="int8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--forms", "fp16"], "graphs in fp32 or int8, not fp16"),
        (["--forms", "none"], "not none"),
        (["--int8-texts", "questions"], "--int8-texts has no meaning"),
        (["--context"], "pairs of two segments"),
        (["--max-length", "65"], "more than the 64 tokens"),
    ],
)
def test_what_an_opaque_network_cannot_do_is_refused(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 1, the reason on standard error, no folder."""
    monkeypatch.chdir(tmp_path)
    Path("questions").write_text(json.dumps({"question": "a", "candidates": ["b"]}) + "\n")
    source = save_mpnet(tmp_path / "source")
    assert main([str(source), str(tmp_path / "out"), "--opaque", *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_repository_without_weights_is_refused(tmp_path: Path) -> None:
    """Also beside a graph, which there would be nothing to compare with."""
    source = save_mpnet(tmp_path / "source")
    (source / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="its weights cannot be read"):
        import_model(str(source), tmp_path / "out")


def test_a_pair_longer_than_the_model_reads_is_refused(tmp_path: Path) -> None:
    """A tokenizer that promises more tokens than there are positions is found out before anything is exported."""
    source = save_mpnet(tmp_path / "source")
    settings = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 66}))
    with pytest.raises(ValueError, match="cannot read a pair of 66 tokens"):
        import_model(str(source), tmp_path / "out")

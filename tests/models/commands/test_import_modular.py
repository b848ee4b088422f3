"""Cross-encoders of sentence-transformers' modules become rankers that score as `CrossEncoder.predict` does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from tests.modular import mean_head, save_modular
from tests.opaque import save_mpnet
from torch import nn

from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Scores
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs

QUESTION = "how tall is the tower ?"
TEXTS = ["330 metres", "", "it was built in paris . " * 20, "what do bees make honey from"]
SAME = 1e-5


def own_scores(source: Path) -> Scores:
    """The scores of sentence-transformers: its sigmoid, or the softmax's second."""
    model = CrossEncoder(str(source), device="cpu")
    pairs = [(QUESTION, text) for text in TEXTS]
    logits = model.predict(pairs, activation_fn=nn.Identity(), show_progress_bar=False)
    values = torch.from_numpy(np.asarray(logits, dtype=np.float64))
    return np.asarray((values.sigmoid() if values.ndim == 1 else values.softmax(dim=1)[:, 1]).numpy())


def scores(checkpoint: Checkpoint, kind: str) -> Scores:
    pairs = checkpoint.encoder().encode(QUESTION, [Candidate(text=text) for text in TEXTS])
    return rank_pairs(open_backend(checkpoint, kind=kind, precision="fp32"), pairs).scores


@pytest.fixture(scope="module")
def ettin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ModernBERT with the Ettin rerankers' head."""
    return save_modular("modernbert", tmp_path_factory.mktemp("ettin"), num_hidden_layers=2)


def test_an_ettin_reranker_is_its_family_with_its_head(ettin: Path, tmp_path: Path) -> None:
    """In torch and ONNX; the encoder's layers are there to be cut and trained."""
    import_model(str(ettin), tmp_path / "out", ImportOptions(forms=("fp32",)))
    checkpoint = read_checkpoint(tmp_path / "out")
    assert (checkpoint.config.body.family, str(checkpoint.config.architecture)) == ("modernbert", "B1 1H1")
    expected = own_scores(ettin)
    assert np.ptp(expected) > 1000 * SAME
    for kind in ("torch", "onnx"):
        assert np.abs(scores(checkpoint, kind) - expected).max() <= SAME


def test_a_mean_and_two_logits_are_read_from_weights_alone(tmp_path: Path) -> None:
    """BERT, whose pooler is not read; every kind of module that Ettin's head has not."""
    source = save_modular("bert", tmp_path, head=mean_head, num_hidden_layers=2)
    import_model(str(source), tmp_path / "out", ImportOptions(forms=()))
    got, expected = scores(read_checkpoint(tmp_path / "out"), "torch"), own_scores(source)
    assert np.ptp(expected) > 1000 * SAME
    assert np.abs(got - expected).max() <= SAME


@pytest.mark.slow
def test_an_unknown_encoder_is_opaque_with_its_head(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """MPNet has no layers here, no token types, and positions that count from the padding token."""
    source = save_modular("mpnet", tmp_path, save=save_mpnet, head=mean_head)
    (source / "run.json").write_text('{"earlier_data": []}')
    import_model(str(source), tmp_path / "out", ImportOptions(forms=("fp32",)))
    checkpoint = read_checkpoint(tmp_path / "out")
    assert checkpoint.config.transformer.family == "opaque"
    assert (checkpoint.path / "run.json").read_text() == '{"earlier_data": []}'  # the data of a teacher
    assert "becomes one opaque stage without exits and heads: model type 'mpnet'" in caplog.text
    assert np.abs(scores(checkpoint, "onnx") - own_scores(source)).max() <= SAME


def described(place: str, **changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / place
        content = json.loads(file.read_text())
        file.write_text(json.dumps({**content, **changes} if isinstance(content, dict) else changes["modules"]))

    return change


def moved(folder: Path) -> None:
    file = folder / "modules.json"
    file.write_text(file.read_text().replace("2_Dense", "../../2_Dense"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (described("1_Pooling/config.json", pooling_mode="max"), "Pooling by max"),
        (described("2_Dense/config.json", activation_function="os.system"), "the activation os.system"),
        (described("2_Dense/config.json", use_residual=True), "with a residual"),
        (described("2_Dense/config.json", module_input_name="token_embeddings"), "which reads token_embeddings"),
        (described("2_Dense/config.json", out_features=31), "do not fit"),
        (described("4_Dense/config.json", module_output_name="sentence_embedding"), "no Dense of one or two outputs"),
        (described("sentence_bert_config.json", do_lower_case=True), "do_lower_case"),
        (described("sentence_bert_config.json", processing_kwargs={"text": {"max_length": 9}}), "processing_kwargs"),
        (lambda folder: (folder / "2_Dense" / "model.safetensors").unlink(), "a part of its head is missing"),
        (lambda folder: (folder / "2_Dense" / "model.safetensors").write_bytes(b"short"), "cannot be read"),
        (lambda folder: (folder / "modules.json").unlink(), "without a classifier that ranks"),
        (described("modules.json", modules=[{"path": "1_Pooling"}]), "not a list of modules"),
        (moved, "outside of the model"),
    ],
)
def test_what_a_head_cannot_be_is_refused_by_name(
    change: Callable[[Path], None], message: str, ettin: Path, tmp_path: Path
) -> None:
    """No module is left out, and no name is looked up as code."""
    shutil.copytree(ettin, tmp_path / "model")
    change(tmp_path / "model")
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(str(tmp_path / "model"), tmp_path / "out", ImportOptions(forms=()))

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder
from tests.contextual import save_contextual, segments_score
from tests.program import program
from tests.tiny import cross_encoder, save_cross_encoder
from tokenizers import Tokenizer

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.convert import own_tokenizer
from cerberank_models.convert.checkpoint import ParityError
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.hugging_face import load_weights
from cerberank_models.convert.own_tokenizer import MOST_TOKENS
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import Candidate
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.rank_pairs import rank_pairs

main = program("import")


def state(source: Path, **settings: object) -> None:
    """Change settings of the model's tokenizer."""
    path = source / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


TEXTS = ["it was built in paris .", "330 metres", "bees make honey"]


MEAN = {"classifier_pooling": "mean"}
FEW_LAYERS = {"num_hidden_layers": 2}
"""Enough to tell a wrong order of layers; every further one makes the export longer."""


@pytest.mark.parametrize(
    ("family", "labels", "changes", "precision"),
    [
        ("albert", 2, {}, ""),
        ("bert", 1, {}, "fp32"),
        ("distilbert", 1, {}, "int8"),
        ("electra", 2, {}, "fp32"),
        ("modernbert", 1, {}, ""),
        ("modernbert", 2, MEAN, ""),
        ("roberta", 1, {}, "fp32"),
        ("xlm-roberta", 1, {}, ""),
    ],
)
def test_an_imported_model_scores_as_sentence_transformers(
    family: str,
    labels: int,
    changes: dict[str, object],
    precision: str,
    tmp_path: Path,
    *,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """PyTorch, and ONNX in fp32, against CrossEncoder.predict on texts: what docs/models.md says of one and two labels,
    and of Identity. An int8 form, which the export compares with the network, is written; languages are the card's.
    The graphs of the other families are tested with their networks: ALBERT's in `convert/test_int8.py`, ModernBERT's in
    `network/bodies/test_pre_norm.py`, with mean pooling too; XLM-RoBERTa's are RoBERTa's.

    Among them are a question that takes more than half of the room, and a candidate that does not fit.
    """
    layers = {"num_hidden_layers": 3, "global_attn_every_n_layers": 2} if family == "modernbert" else FEW_LAYERS
    source = save_cross_encoder(family, tmp_path / "source", num_labels=labels, **(layers | changes))
    state(source, model_max_length=48)
    (source / "README.md").write_text("---\nlanguage: en\n---\n")
    assert main([str(source), str(tmp_path / "out"), "--precisions", precision, "--name", "imported"]) == 0
    forms = f"ONNX {precision}" if precision else "weights alone"
    assert f"{tmp_path / 'out'} is imported, {forms}; next:" in capsys.readouterr().err
    checkpoint = read_checkpoint(tmp_path / "out")
    assert checkpoint.config.languages == ("en",)
    assert checkpoint.precisions == ((precision,) if precision else ())
    kinds = ["torch", "onnx"] if precision == "fp32" else ["torch"]
    backends = [open_backend(checkpoint, kind=kind, precision="fp32") for kind in kinds]
    encoder, model = checkpoint.encoder(), CrossEncoder(str(source), device="cpu")
    for question in ("how tall ?", "how tall is the tower " * 9):
        texts = [*TEXTS, "it was built in paris " * 20]
        pairs = [(question, text) for text in texts]
        raw = model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False).astype(np.float64)
        if labels == 1:
            wanted = model.predict(pairs, show_progress_bar=False)
        else:
            assert np.array_equal(model.predict(pairs, show_progress_bar=False), raw)
            wanted, raw = model.predict(pairs, apply_softmax=True, show_progress_bar=False)[:, 1], raw[:, 1] - raw[:, 0]
        for backend in backends:
            got = rank_pairs(backend, encoder.encode(question, [Candidate(text=text) for text in texts])).scores
            log_odds = np.log(got) - np.log1p(-got)
            assert np.abs(got - wanted).max() <= 1e-5
            assert np.abs(log_odds - raw).max() <= 1e-4
    assert np.ptp(got) > 1e-3


def test_pairs_are_as_long_as_the_tokenizer_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Not as long as there are positions; a longer one than these is refused, and a very long one is told of."""
    source = save_cross_encoder("bert", tmp_path / "source", max_position_embeddings=600)

    def imported(length: int, *options: str) -> int:
        state(source, model_max_length=length)
        out = tmp_path / f"{length}{len(options)}"
        assert main([str(source), str(out), "--precisions", "", *options]) == 0
        return read_checkpoint(out).config.encoding.max_length

    assert imported(40) == 40
    assert imported(40, "--max-length", "48") == 48
    assert imported(550, "--max-length", "520") == 520
    assert imported(550) == MOST_TOKENS
    assert f"pairs are cut at 512 of the 550 tokens that {source} reads" in caplog.text
    assert main([str(source), str(tmp_path / "out"), "--max-length", "601"]) == 1
    assert "max_length 601 is more than the 600 positions" in capsys.readouterr().err


def test_a_model_that_scores_all_pairs_alike_is_refused(tmp_path: Path) -> None:
    """A classifier without weights gives every pair its bias."""
    model = cross_encoder("bert", num_labels=1)
    torch.nn.init.zeros_(model.classifier.weight)
    save_cross_encoder("bert", tmp_path / "source")
    model.save_pretrained(tmp_path / "source")
    with pytest.raises(UnsupportedModelError, match=r"gives every pair the same score, 0\.5: it is not trained"):
        import_model(str(tmp_path / "source"), tmp_path / "out", ImportOptions(precisions=()))


def test_a_model_with_a_prompt_is_refused(tmp_path: Path) -> None:
    """As sentence-transformers saves it; prompts that are not read by default, and empty ones, do no harm."""
    source = save_cross_encoder("bert", tmp_path / "source")
    for number, (default, refused) in enumerate([("query", True), (None, False), ("none", False)]):
        prompts = {"query": "judge : ", "none": ""}
        CrossEncoder(str(source), device="cpu", prompts=prompts, default_prompt_name=default).save_pretrained(
            str(tmp_path / str(number))
        )
        if refused:
            with pytest.raises(UnsupportedModelError, match="reads the prompt 'judge : ' before every question"):
                import_model(str(tmp_path / str(number)), tmp_path / "out", ImportOptions(precisions=()))
        else:
            import_model(str(tmp_path / str(number)), tmp_path / f"out{number}", ImportOptions(precisions=()))


def test_a_model_without_its_tokenizer_is_refused(tmp_path: Path) -> None:
    """With its settings alone or without them; then transformers would make one that reads every text as unknown."""
    source = save_cross_encoder("bert", tmp_path / "source")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (source / name).unlink()
        with pytest.raises(UnsupportedModelError, match=r"has no tokenizer: none of tokenizer\.json"):
            import_model(str(source), tmp_path / "out", ImportOptions(precisions=()))


def test_a_token_without_an_embedding_is_refused_by_name(tmp_path: Path) -> None:
    """A checkpoint with it could never be opened; libraries fail on the texts that hold it."""
    source = save_cross_encoder("bert", tmp_path / "source")
    path = source / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    embeddings = json.loads((source / "config.json").read_text())["vocab_size"]
    tokenizer.add_tokens([f"new{number}" for number in range(embeddings - tokenizer.get_vocab_size() + 2)])
    tokenizer.save(str(path))
    with pytest.raises(UnsupportedModelError, match=rf"2 tokens .* {embeddings} embeddings: 'new\d+' \({embeddings}"):
        import_model(str(source), tmp_path / "out")


def test_weights_of_another_shape_are_named(tmp_path: Path) -> None:
    """A head of one logit without labels in the configuration, for which transformers makes two."""
    source = save_cross_encoder("bert", tmp_path / "source", num_labels=1)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({name: config[name] for name in config if "label" not in name}))
    with pytest.raises(UnsupportedModelError, match=r"classifier\.bias has the shape \[1\], .* asks for \[2\]"):
        import_model(str(source), tmp_path / "out")


def test_a_sentencepiece_model_names_the_package_that_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers names tiktoken, because it takes the file for one of tiktoken's."""
    source = save_cross_encoder("xlm-roberta", tmp_path / "source")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (source / name).unlink()
    (source / "sentencepiece.bpe.model").write_bytes(b"damaged")
    monkeypatch.setattr(own_tokenizer, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedModelError, match=r"sentencepiece\.bpe\.model needs the package sentencepiece"):
        import_model(str(source), tmp_path / "out")


def test_a_model_with_another_pair_template_is_refused(tmp_path: Path) -> None:
    """Its tokenizer tells no types, so that it was trained on zeros; the family's template has ones."""
    source = save_cross_encoder("bert", tmp_path / "source")
    state(source, model_input_names=["input_ids", "attention_mask"])
    with pytest.raises(UnsupportedModelError, match="token types of the pair"):
        import_model(str(source), tmp_path / "out", ImportOptions(precisions=()))


def test_albert_keeps_its_size(tmp_path: Path) -> None:
    """The weights file holds each of the source's weights once. The summary of the source's training is kept."""
    source = save_cross_encoder("albert", tmp_path / "source", num_labels=2, **FEW_LAYERS)
    (source / "run.json").write_text('{"earlier_data": []}')
    assert main([str(source), str(tmp_path / "out"), "--precisions", ""]) == 0
    checkpoint = read_checkpoint(tmp_path / "out")
    assert (checkpoint.path / "run.json").read_text() == '{"earlier_data": []}'
    assert str(checkpoint.config.architecture) == "B2 1H0"
    assert checkpoint.weights is not None
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source)
    held = sum(value.numel() for value in load_file(checkpoint.weights).values())
    assert held == sum(parameter.numel() for parameter in model.parameters())


def test_a_model_with_three_labels_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, the reason on standard error, no folder."""
    source = save_cross_encoder("bert", tmp_path / "source", num_labels=3)
    assert main([str(source), str(tmp_path / "out")]) == 1
    assert "3 labels" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_a_third_segment_has_its_own_token_type(family: str, tmp_path: Path) -> None:
    """Torch, and for BERT ONNX fp32 and int8, against Hugging Face's model on `q s c` with types 0, 1, 2."""
    source = save_contextual(family, tmp_path / "source")
    precisions = ("fp32", "int8") if family == "bert" else ()
    assert main([str(source), str(tmp_path / "out"), "--name", "c", "--precisions", ",".join(precisions)]) == 0
    checkpoint = read_checkpoint(tmp_path / "out")
    assert checkpoint.config.encoding == TeacherInput(max_length=60, context=True).encoding()
    assert checkpoint.config.transformer.type_vocab_size == 3
    question, candidates = "how tall ?", [Candidate(text="a b", previous="c d", next="e"), Candidate(text="built")]
    texts = [[question, "a b", "c d e"], [question, "built", ""]]
    own, shared = (
        np.asarray([segments_score(source, each, types) for each in texts]) for types in ([0, 1, 2], [0, 1, 1])
    )
    pairs = checkpoint.encoder().encode(question, candidates)
    bounds = {"fp32": 1e-4, "int8": 0.15}
    for kind, precision in (("torch", "fp32"), *(("onnx", each) for each in precisions)):
        got = rank_pairs(open_backend(checkpoint, kind=kind, precision=precision), pairs).scores
        assert np.abs(got - own).max() <= bounds[precision], (kind, precision)
    assert np.abs(own - shared).max() > 10 * bounds["fp32"]


def test_context_of_a_model_without_a_file_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--context` of any classifier; a teacher whose file says that it reads none is refused."""
    source = save_cross_encoder("bert", tmp_path / "source")
    assert main([str(source), str(tmp_path / "out"), "--name", "c", "--context", "--precisions", ""]) == 0
    assert read_checkpoint(tmp_path / "out").config.encoding.segments == 3
    TeacherInput(max_length=32).write(source)
    assert main([str(source), str(tmp_path / "pair"), "--name", "c", "--precisions", ""]) == 0
    assert read_checkpoint(tmp_path / "pair").config.encoding == TeacherInput(max_length=32).encoding()
    assert main([str(source), str(tmp_path / "again"), "--context"]) == 1
    assert "does not read context" in capsys.readouterr().err


def test_an_encoder_without_a_classifier_is_refused(tmp_path: Path) -> None:
    """Hugging Face would give it a random classifier."""
    save_cross_encoder("bert", tmp_path / "source")
    described = transformers.AutoConfig.from_pretrained(tmp_path / "source")
    transformers.AutoModel.from_config(described).save_pretrained(tmp_path / "source")
    with pytest.raises(UnsupportedModelError, match="is BertModel, without a classifier that ranks"):
        import_model(str(tmp_path / "source"), tmp_path / "out", ImportOptions(name="x", precisions=()))
    assert not (tmp_path / "out").exists()


def test_scores_that_are_not_the_original_network_s_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A family's rule that is wrong for a model: every weight finds a place, and the scores are others."""
    source = save_cross_encoder("bert", tmp_path / "source", num_labels=1)

    def swapped(ranker: RankingNetwork, weights: dict[str, torch.Tensor]) -> None:
        first, second = (f"bert.encoder.layer.{layer}." for layer in (0, 1))
        layers = {
            key.replace(first, "*").replace(second, first).replace("*", second): value for key, value in weights.items()
        }
        load_weights(ranker, layers)

    monkeypatch.setattr("cerberank_models.commands.import_model.load_weights", swapped)
    with pytest.raises(ParityError, match="imported scores differ from PyTorch's by"):
        import_model(str(source), tmp_path / "out", ImportOptions(precisions=()))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [[], ["--opaque"]])
def test_weights_that_are_incomplete_are_named(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was cut off, and what git holds in its place: a line that names the file, and no traceback."""
    source = save_cross_encoder("bert", tmp_path / "source")
    weights = source / "model.safetensors"
    content = weights.read_bytes()
    for broken in (content[: len(content) // 2], b"version https://git-lfs.github.com/spec/v1\n"):
        weights.write_bytes(broken)
        assert main([str(source), str(tmp_path / "out"), *options]) == 1
        assert f"{weights} is incomplete, or a git-lfs pointer" in capsys.readouterr().err

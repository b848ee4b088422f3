"""`cerberank import` of sequence classifiers: scores are those of their own libraries, and what has none is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder
from tests.contextual import save_contextual, segments_score
from tests.program import program
from tests.tiny import save_cross_encoder
from tokenizers import Tokenizer

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.convert import source_tokenizer
from cerberank_models.convert.checkpoint import ParityError
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.from_hugging_face import load_weights
from cerberank_models.convert.source_tokenizer import MOST_TOKENS
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import Candidate
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.rank_pairs import rank_pairs

main = program("import")
WEIGHTS_ALONE = ImportOptions(forms=())
TEXTS = ["it was built in paris .", "330 metres", "bees make honey", "it was built in paris " * 20]


def edit(file: Path, **changes: object) -> None:
    """Change values of a JSON object; None removes one."""
    values = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))


@pytest.mark.parametrize(
    ("family", "labels", "changes"),
    [
        ("albert", 2, {}),
        ("bert", 1, {}),
        ("distilbert", 1, {}),
        ("electra", 2, {}),
        ("modernbert", 1, {}),
        ("modernbert", 2, {"classifier_pooling": "mean"}),
        ("roberta", 1, {}),
        ("xlm-roberta", 1, {}),
    ],
)
def test_an_imported_model_scores_as_sentence_transformers(
    family: str, labels: int, changes: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As CrossEncoder.predict on texts: what docs/models.md says of one and two labels, and of Identity.

    One family is run by ONNX too, whose graphs of other families are tested with their networks. Among the pairs are a
    question that takes more than half of the room, and a candidate that does not fit.
    """
    layers = {"num_hidden_layers": 2}
    if family == "modernbert":
        layers = {"num_hidden_layers": 3, "global_attn_every_n_layers": 2}
    source = save_cross_encoder(family, tmp_path / "source", num_labels=labels, **(layers | changes))
    edit(source / "tokenizer_config.json", model_max_length=48)
    (source / "README.md").write_text("---\nlanguage: en\n---\n")
    precision = "fp32" if family == "bert" else ""
    assert main([str(source), str(tmp_path / "out"), "--forms", precision, "--name", "imported"]) == 0
    forms = f"ONNX {precision}" if precision else "weights alone"
    checkpoint = read_checkpoint(tmp_path / "out")
    written = f"{tmp_path / 'out'} is imported {checkpoint.manifest.version}, {forms}; next:"
    assert written in capsys.readouterr().err
    assert checkpoint.config.languages == ("en",)
    backends = [
        open_backend(checkpoint, kind=kind, precision="fp32") for kind in ("torch", *["onnx"] * bool(precision))
    ]
    encoder, model = checkpoint.encoder(), CrossEncoder(str(source), device="cpu")
    for question in ("how tall ?", "how tall is the tower " * 9):
        pairs = [(question, text) for text in TEXTS]
        odds = model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False).astype(np.float64)
        if labels == 1:
            wanted = model.predict(pairs, show_progress_bar=False)
        else:
            wanted = model.predict(pairs, apply_softmax=True, show_progress_bar=False)[:, 1]
            odds = odds[:, 1] - odds[:, 0]
        for backend in backends:
            got = rank_pairs(backend, encoder.encode(question, [Candidate(text=text) for text in TEXTS])).scores
            assert np.abs(got - wanted).max() <= 1e-5
            assert np.abs(np.log(got) - np.log1p(-got) - odds).max() <= 1e-4
    assert np.ptp(got) > 1e-3


def test_pairs_are_as_long_as_the_tokenizer_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Not as long as there are positions; a longer one than these is refused, and a very long one is told of."""
    source = save_cross_encoder("bert", tmp_path / "source", max_position_embeddings=600)

    def imported(length: int, *options: str) -> int:
        edit(source / "tokenizer_config.json", model_max_length=length)
        out = tmp_path / f"{length}{len(options)}"
        assert main([str(source), str(out), "--forms", "none", *options]) == 0
        return read_checkpoint(out).config.encoding.max_length

    assert imported(40) == 40
    assert imported(40, "--max-length", "48") == 48
    assert imported(550, "--max-length", "520") == 520
    assert imported(550) == MOST_TOKENS
    assert f"pairs are cut at 512 of the 550 tokens that {source} reads" in caplog.text
    assert main([str(source), str(tmp_path / "out"), "--max-length", "601"]) == 1
    assert "max_length 601 is more than the 600 positions" in capsys.readouterr().err


def change_model(source: Path, change: Callable[[Any], object]) -> None:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source)
    change(model)
    model.save_pretrained(source)


def with_prompt(source: Path, default: str | None) -> None:
    prompts = {"query": "judge : ", "none": ""}
    CrossEncoder(str(source), device="cpu", prompts=prompts, default_prompt_name=default).save_pretrained(str(source))


def without_tokenizer(source: Path, *names: str) -> None:
    for name in names:
        (source / name).unlink()


def with_more_tokens(source: Path) -> None:
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    embeddings = json.loads((source / "config.json").read_text())["vocab_size"]
    tokenizer.add_tokens([f"new{number}" for number in range(embeddings - tokenizer.get_vocab_size() + 2)])
    tokenizer.save(str(source / "tokenizer.json"))


def without_classifier(source: Path) -> None:
    transformers.AutoModel.from_pretrained(source).save_pretrained(source)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda source: edit(source / "config.json", id2label={0: "a", 1: "b", 2: "c"}), "has 3 labels"),
        (without_classifier, "is BertModel, without a classifier that ranks"),
        (
            lambda source: change_model(source, lambda model: torch.nn.init.zeros_(model.classifier.weight)),
            r"gives every pair the same score, 0\.5: it is not trained",
        ),
        (lambda source: with_prompt(source, "query"), "reads the prompt 'judge : ' before every question"),
        # Transformers would make a tokenizer that reads every text as unknown.
        (lambda source: without_tokenizer(source, "tokenizer.json"), r"has no tokenizer: none of tokenizer\.json"),
        (lambda source: without_tokenizer(source, "tokenizer.json", "tokenizer_config.json"), "has no tokenizer"),
        # A checkpoint with it could never be opened; libraries fail on the texts that hold it.
        (with_more_tokens, r"2 tokens .* embeddings: 'new\d+' \(\d+\)"),
        (lambda source: edit(source / "config.json", id2label=None), r"has the shape \[1\], .* asks for \[2\]"),
    ],
    ids=["labels", "encoder", "untrained", "prompt", "tokenizer", "nothing", "tokens", "shape"],
)
def test_a_model_that_cannot_rank_is_refused(change: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    """With the reason, and without a folder."""
    source = save_cross_encoder("bert", tmp_path / "source", num_labels=1)
    change(source)
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(str(source), tmp_path / "out", WEIGHTS_ALONE)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("default", [None, "none"])
def test_a_prompt_that_is_not_read_does_no_harm(default: str | None, tmp_path: Path) -> None:
    """Prompts that are not the default, and empty ones."""
    source = save_cross_encoder("bert", tmp_path / "source")
    with_prompt(source, default)
    import_model(str(source), tmp_path / "out", WEIGHTS_ALONE)


def test_a_sentencepiece_model_names_the_package_that_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers names tiktoken, because it takes the file for one of tiktoken's."""
    source = save_cross_encoder("xlm-roberta", tmp_path / "source")
    without_tokenizer(source, "tokenizer.json", "tokenizer_config.json")
    (source / "sentencepiece.bpe.model").write_bytes(b"damaged")
    monkeypatch.setattr(source_tokenizer, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedModelError, match=r"sentencepiece\.bpe\.model needs the package sentencepiece"):
        import_model(str(source), tmp_path / "out")


def test_albert_keeps_its_size(tmp_path: Path) -> None:
    """The weights file holds each of the source's weights once. The summary of the source's training is kept."""
    source = save_cross_encoder("albert", tmp_path / "source", num_labels=2, num_hidden_layers=2)
    (source / "run.json").write_text('{"earlier_data": []}')
    import_model(str(source), tmp_path / "out", WEIGHTS_ALONE)
    checkpoint = read_checkpoint(tmp_path / "out")
    assert (checkpoint.path / "run.json").read_text() == '{"earlier_data": []}'
    assert str(checkpoint.config.architecture) == "B2 1H0"
    assert checkpoint.weights is not None
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source)
    held = sum(value.numel() for value in load_file(checkpoint.weights).values())
    assert held == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_third_segment_has_its_own_token_type(family: str, tmp_path: Path) -> None:
    """As Hugging Face's model on `q s c` with types 0, 1, 2."""
    source = save_contextual(family, tmp_path / "source")
    import_model(str(source), tmp_path / "out", WEIGHTS_ALONE)
    checkpoint = read_checkpoint(tmp_path / "out")
    assert checkpoint.config.encoding == TeacherInput(max_length=60, context=True).encoding()
    assert checkpoint.config.transformer.type_vocab_size == 3
    question, candidates = "how tall ?", [Candidate(text="a b", previous="c d", next="e"), Candidate(text="built")]
    texts = [[question, "a b", "c d e"], [question, "built", ""]]
    own, shared = (
        np.asarray([segments_score(source, each, types) for each in texts]) for types in ([0, 1, 2], [0, 1, 1])
    )
    got = rank_pairs(open_backend(checkpoint, kind="torch"), checkpoint.encoder().encode(question, candidates)).scores
    assert np.abs(got - own).max() <= 1e-4
    assert np.abs(own - shared).max() > 1e-3


def test_context_of_a_model_without_a_file_is_asked_for(tmp_path: Path) -> None:
    """`--context` of any classifier; a teacher whose file says that it reads none is refused."""
    source = save_cross_encoder("bert", tmp_path / "source")
    import_model(str(source), tmp_path / "out", ImportOptions(context=True, forms=()))
    assert read_checkpoint(tmp_path / "out").config.encoding.segments == 3
    TeacherInput(max_length=32).write(source)
    import_model(str(source), tmp_path / "pair", WEIGHTS_ALONE)
    assert read_checkpoint(tmp_path / "pair").config.encoding == TeacherInput(max_length=32).encoding()
    with pytest.raises(UnsupportedModelError, match="does not read context"):
        import_model(str(source), tmp_path / "again", ImportOptions(context=True))


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
        import_model(str(source), tmp_path / "out", WEIGHTS_ALONE)
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

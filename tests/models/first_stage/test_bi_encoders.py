"""Encoders from elsewhere compute what they computed there, and what cannot be computed is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.first_stages import ranker_of
from tests.program import program
from tests.text_rankers import JOINT_TWIN, TWIN, text_ranker
from tests.tiny import WORDS, bert_tokenizer, hugging_face_config, save_tokenizer

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.encoding import concat_pairs
from cerberank_models.first_stage.bi_encoders import read_bi_encoder
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.first_stage.text_ranker_folder import write_text_ranker
from cerberank_models.first_stage.torch_encoder import TorchEncoder
from cerberank_models.network.texts import Texts
from cerberank_models.text_encoding import TextEncoder

main = program("checkpoint first-stage")

TEXTS = ["how tall is the tower", "b", "what do bees make honey from", "the river city of paris"]
HALF = 2.0**-11
"""The relative error of a number that is rounded to float16."""


def sentence_encoder(folder: Path, **changes: Any) -> Path:
    """A tiny model in the layout of sentence-transformers."""
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(hugging_face_config("bert", num_hidden_layers=2)).eval()
    model.save_pretrained(folder)
    save_tokenizer(bert_tokenizer(), folder)
    kinds = changes.get("modules", ["Transformer", "Pooling", "Normalize"])
    modules = [{"idx": index, "type": f"sentence_transformers.models.{kind}"} for index, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    mode = changes.get("mode", "mean_tokens")
    if mode is not None:
        (folder / "1_Pooling").mkdir()
        modes = {f"pooling_mode_{name}": name == mode for name in ("cls_token", "mean_tokens", "max_tokens")}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **modes}))
    prompts = changes.get("prompts", {})
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    return folder


def scores(bi: Any) -> np.ndarray:
    """The scores of the texts for the first word as question."""
    encoder = TextEncoder(bi.tokenizer, bi.network.config)
    vectors = TorchEncoder(bi.network).encode(concat_pairs([encoder.questions([WORDS[0]]), encoder.candidates(TEXTS)]))
    return FirstStageScorer(bi.network.config, bi.weights)(vectors[0], vectors[1:])


def test_a_sentence_encoder_scores_by_cosine(tmp_path: Path) -> None:
    """Scores are (1 + cosine) / 2 of masked means that Hugging Face's model gives."""
    folder = sentence_encoder(tmp_path)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    means = []
    with torch.inference_mode():
        for text in (WORDS[0], *TEXTS):
            means.append(model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0))
    cosines = torch.nn.functional.cosine_similarity(means[0][None], torch.stack(means[1:]))
    got = scores(read_bi_encoder(str(folder), candidate_length=20))
    assert got == pytest.approx((1 + cosines.numpy()) / 2, abs=2 * HALF)


@pytest.mark.parametrize("shape", [{"first_ranker": "residual", "token_ranker": "twin"}, {"token_ranker": "colbert"}])
def test_a_text_ranker_scores_as_it_was_trained(shape: dict[str, Any], tmp_path: Path) -> None:
    """Scores are the network's own, of texts that fit into a window."""
    ranker = ranker_of(shape)
    write_text_ranker(tmp_path / "ranker", ranker, bert_tokenizer(), version="1", source="tests")
    bi = read_bi_encoder(str(tmp_path / "ranker"), candidate_length=20)
    encoder = TextEncoder(bi.tokenizer, bi.network.config)

    def texts(encoded: Any) -> Texts:
        ids, offsets = torch.from_numpy(encoded.token_ids), torch.from_numpy(encoded.offsets)
        return Texts(ids, offsets, torch.arange(len(encoded) + 1))

    owners = torch.zeros(len(TEXTS), dtype=torch.int64)
    with torch.inference_mode():
        expected = ranker(texts(encoder.questions([WORDS[0]])), texts(encoder.candidates(TEXTS)), owners).scores
    # fp16 rounds every number of a vector; a score sums some ten of them with weights of about 1
    assert scores(bi) == pytest.approx(expected.sigmoid().numpy(), abs=20 * HALF)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modules": ["Transformer", "Pooling", "Dense"]}, "modules that are not supported: Dense"),
        ({"mode": "cls_token"}, "pools by cls_token: only mean_tokens"),
        ({"mode": "unknown"}, "pools by nothing"),
        ({"mode": None}, "has no 1_Pooling"),
        ({"prompts": {"query": "query: "}}, "puts prompts before its texts"),
    ],
)
def test_other_sentence_encoders_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    """The difference in the computation is named."""
    with pytest.raises(UnsupportedModelError, match=message):
        read_bi_encoder(str(sentence_encoder(tmp_path, **changes)), candidate_length=20)


def test_hostile_folders_are_refused_as_those_of_cross_encoders_are(tmp_path: Path) -> None:
    """A link that leads out of the folder, and more weights than the file holds."""
    (tmp_path / "secret").write_text("a")
    folder = sentence_encoder(tmp_path / "model")
    (folder / "notes.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(UnsupportedModelError, match="link to a place outside"):
        read_bi_encoder(str(folder), candidate_length=20)
    (folder / "notes.txt").unlink()
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | {"hidden_size": 65_536}))
    with pytest.raises(UnsupportedModelError, match=r"has at least .* weights, and all of its files"):
        read_bi_encoder(str(folder), candidate_length=20)


def test_empty_prompts_change_nothing(tmp_path: Path) -> None:
    """As sentence-transformers writes them by default."""
    read_bi_encoder(str(sentence_encoder(tmp_path, prompts={"query": "", "document": ""})), candidate_length=20)


def test_a_joint_text_ranker_is_refused(tmp_path: Path) -> None:
    """A cross-encoder has no vector of one text."""
    write_text_ranker(tmp_path / "ranker", text_ranker(JOINT_TWIN), bert_tokenizer(), version="1", source="tests")
    with pytest.raises(UnsupportedModelError, match="is joint"):
        read_bi_encoder(str(tmp_path / "ranker"), candidate_length=20)


def test_candidates_longer_than_the_encoders_positions_are_refused(tmp_path: Path) -> None:
    """By the option, with the number of tokens that fit."""
    write_text_ranker(tmp_path / "ranker", text_ranker(TWIN), bert_tokenizer(), version="1", source="tests")
    config = text_ranker(TWIN).config
    most = config.room - config.encoding.special
    assert read_bi_encoder(str(tmp_path / "ranker"), candidate_length=most)
    with pytest.raises(
        UnsupportedModelError, match=rf"^--candidate-length {most + 1} does not fit: .* at most {most} "
    ):
        read_bi_encoder(str(tmp_path / "ranker"), candidate_length=most + 1)


def test_the_verb_says_how_many_tokens_a_text_ranker_was_trained_on(
    plain: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said where the first stage reads more of a candidate than that."""
    ranker = text_ranker(TWIN)
    write_text_ranker(tmp_path / "ranker", ranker, bert_tokenizer(), version="1", source="tests")
    window = ranker.config.encoding.window
    for length, warns in ((window, False), (window + 1, True)):
        out = str(tmp_path / f"out-{length}")
        options = ["--forms", "none", "--candidate-length", str(length)]
        assert main([str(plain.path), str(tmp_path / "ranker"), out, *options]) == 0
        assert (f"--candidate-length {window} reads as many" in capsys.readouterr().err) == warns


def test_the_verb_writes_a_checkpoint(plain: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says that `tune` must be run; what is refused is one line on standard error, and nothing is written."""
    folder = str(sentence_encoder(tmp_path / "encoder"))
    arguments = [str(plain.path), folder, str(tmp_path / "out"), "--forms", "none", "--candidate-length", "20"]
    assert main([*arguments, "--drop-ratio", "0.6"]) == 0
    assert "run `cerberank train tune" in capsys.readouterr().out
    made = read_checkpoint(tmp_path / "out").config
    assert made.schedule == (0.6, *plain.config.schedule)
    assert (made.first_stage.token_ranker, made.first_stage.encoding.document_length) == ("dot", 20)
    assert main(arguments) == 1
    assert "cerberank checkpoint first-stage: " in capsys.readouterr().err

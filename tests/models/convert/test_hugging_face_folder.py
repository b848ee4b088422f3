"""Exported heads in transformers and sentence-transformers: equal scores, every family, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import transformers
from huggingface_hub import ModelCard
from sentence_transformers import CrossEncoder
from tests.tiny import random_ranker, save_cross_encoder

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.manifest import Manifest
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.convert.checkpoint import Forms, ParityError, export_checkpoint
from cerberank_models.convert.families import FAMILIES, UnsupportedModelError
from cerberank_models.convert.hugging_face_folder import check_written, export_hugging_face, hugging_face_card
from cerberank_models.convert.to_hugging_face import one_head
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import pairs_policy, rank_pairs

QUESTION = "how tall is the tower ?"
TEXTS = ["it was built in paris .", "330 metres", "", "bees make honey"]
CARD = "# random\n\nRandom weights, for tests.\n"


def scores(checkpoint: Checkpoint, question: str = QUESTION) -> np.ndarray:
    backend = open_backend(checkpoint, kind="torch", precision="fp32")
    pairs = checkpoint.encoder().encode(question, [Candidate(text=text) for text in TEXTS])
    return np.asarray(rank_pairs(backend, pairs).scores)


def imported(source: Path, out: Path, *, length: int = 60) -> Checkpoint:
    import_model(str(source), out, ImportOptions(name="imported", max_length=length, forms=()))
    return read_checkpoint(out)


def several(tmp_path: Path, *, family: str = "bert", exits: tuple[int, ...] = (1, 2), heads: int = 3) -> Checkpoint:
    """A random ranker B3 3H1 with the tokenizer of its family."""
    save_cross_encoder(family, tmp_path / "tokenizer")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "tokenizer").backend_tokenizer
    ranker = random_ranker(family=family, heads=heads, exits=exits)
    record = {"run.json": b'{"seed": 1}'}
    export_checkpoint(
        ranker, tokenizer, tmp_path / "c", card=CARD, version="7", source="", forms=Forms(precisions=()), files=record
    )
    return read_checkpoint(tmp_path / "c")


@pytest.mark.parametrize(("family", "labels"), [*zip(FAMILIES, [2, 1] * 4, strict=False), ("bert", 2)])
def test_there_and_back(family: str, labels: int, tmp_path: Path) -> None:
    """Import, export, import: CrossEncoder.predict and the second import score alike.

    The folder holds as many tokens as the checkpoint reads, and sentence-transformers reads as many.
    """
    source = save_cross_encoder(family, tmp_path / "source", num_labels=labels)
    checkpoint = imported(source, tmp_path / "checkpoint")
    export_hugging_face(checkpoint, tmp_path / "exported")
    wanted = scores(checkpoint)
    model = CrossEncoder(str(tmp_path / "exported"), device="cpu")
    pairs = [(QUESTION, text) for text in TEXTS]
    assert np.abs(model.predict(pairs, show_progress_bar=False) - wanted).max() <= 1e-5
    assert model.max_seq_length == 60
    again = import_model(str(tmp_path / "exported"), tmp_path / "again", ImportOptions(name="imported", forms=()))
    again = read_checkpoint(tmp_path / "again")
    assert again.config.encoding.max_length == 60
    assert np.abs(scores(again) - wanted).max() <= 1e-5
    assert np.ptp(wanted) > 1e-3


def test_modernbert_keeps_the_mean_and_its_frequencies(tmp_path: Path) -> None:
    """The fields of ModernBERT's configuration beside its sizes are written again."""
    rope = {
        kind: {"rope_type": "default", "rope_theta": theta}
        for kind, theta in (("full_attention", 5e4), ("sliding_attention", 500.0))
    }
    changes = {
        "classifier_pooling": "mean",
        "classifier_bias": True,
        "rope_parameters": rope,
        "norm_bias": True,
        "mlp_bias": True,
    }
    source = save_cross_encoder("modernbert", tmp_path / "source", num_labels=1, **changes)
    checkpoint = imported(source, tmp_path / "checkpoint")
    export_hugging_face(checkpoint, tmp_path / "exported")
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("source", "exported"))
    assert {name: after[name] for name in (*changes, "layer_types", "local_attention")} == {
        name: before[name] for name in (*changes, "layer_types", "local_attention")
    }


@pytest.mark.parametrize("head", [1, 3])
def test_one_of_several_heads_scores_as_that_head(head: int, tmp_path: Path) -> None:
    """B3 3H1 with exits: the head that was named, by its scores in the checkpoint."""
    checkpoint = several(tmp_path)
    export_hugging_face(checkpoint, tmp_path / "out", head=head)
    assert (tmp_path / "out" / "run.json").read_bytes() == b'{"seed": 1}'
    backend = open_backend(checkpoint, kind="torch", precision="fp32")
    pairs = checkpoint.encoder().encode(QUESTION, [Candidate(text=text) for text in TEXTS])
    of_heads = rank_pairs(backend, pairs, pairs_policy(checkpoint.config, 0.0)).heads
    got = CrossEncoder(str(tmp_path / "out"), device="cpu").predict(
        [(QUESTION, text) for text in TEXTS], show_progress_bar=False
    )
    assert np.abs(got - of_heads[:, head - 1]).max() <= 1e-5
    assert np.abs(got - of_heads[:, 1]).max() > 1e-3
    card = (tmp_path / "out" / "README.md").read_text()
    assert (
        f"head {head} of 3 of the checkpoint\n`random-tiny@7` (B3 3H1). The other heads and the exits are left out."
        in card
    )


def test_heads_that_albert_has_no_layer_for_are_refused(tmp_path: Path) -> None:
    """Its one layer stands at all depths, and this head has another one."""
    checkpoint = several(tmp_path, family="albert", exits=(), heads=1)
    with pytest.raises(UnsupportedModelError, match=r"AlbertForSequenceClassification: .* which differ"):
        export_hugging_face(checkpoint, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_scores_otherwise_is_noticed(tmp_path: Path) -> None:
    """The check reads the folder as a user would: another head's weights do not pass it."""
    checkpoint = several(tmp_path)
    export_hugging_face(checkpoint, tmp_path / "out", head=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out").backend_tokenizer
    check_written(tmp_path / "out", one_head(random_ranker(), 1), tokenizer)
    with pytest.raises(ParityError, match="scores differ by"):
        check_written(tmp_path / "out", one_head(random_ranker(), 2), tokenizer)


def test_a_folder_that_exists_stays(tmp_path: Path) -> None:
    """Nothing is written over."""
    checkpoint = several(tmp_path, exits=(), heads=1)
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError, match="out exists"):
        export_hugging_face(checkpoint, tmp_path / "out")


def test_terms_of_a_card_are_kept(tmp_path: Path) -> None:
    """Metadata of the checkpoint's card stay, with what the hub needs beside them; no other card is needed."""
    config = random_ranker(heads=1, exits=()).config
    manifest = Manifest(version="1", created="2026-11-23T00:00:00Z", source="", files={})
    for text, licence in (("# r\n\nText.\n", None), ("---\nlicense: mit\ntags: [mine]\n---\n# r\n\nText.\n", "mit")):
        (tmp_path / "README.md").write_text(text)
        read = Checkpoint(path=tmp_path, config=config, manifest=manifest, golden=())
        card = ModelCard(hugging_face_card(read, head=1, model_class="BertForSequenceClassification", place="team/r"))
        data = card.data.to_dict()
        assert (data.get("license"), data["pipeline_tag"]) == (licence, "text-ranking")
        assert "cross-encoder" in data["tags"]
        assert ("mine" in data["tags"]) == (licence is not None)
        assert 'CrossEncoder("team/r")' in card.text
        assert card.text.lstrip().startswith("# r\n\nText.\n")

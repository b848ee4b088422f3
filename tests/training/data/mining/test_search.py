"""Searches by vectors: the best of all texts, as sentence-transformers' vectors rank them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tests.first_stages import attached
from tests.text_rankers import TR_TWIN, text_ranker
from tests.tiny import WORDS, bert_tokenizer, hugging_face_config, random_ranker, save_tokenizer

from cerberank_models.checkpoint.bound import BoundError
from cerberank_models.checkpoint.folder import CheckpointError, read_checkpoint
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.first_stage.opening import open_first_stage
from cerberank_models.first_stage.text_ranker_folder import write_text_ranker
from cerberank_training.data.mining import search as module
from cerberank_training.data.mining.search import Search, vector_search

CORPUS = [" ".join(WORDS[start : start + size]) for start in range(20) for size in (1, 3, 6)]
QUESTIONS = ["how tall is the tower", "what do bees make", "river city"]
KNOWN = [[3], [4, 5], [59]]


def sentence_encoder(folder: Path) -> Path:
    """A tiny sentence-transformers model, as that library writes it."""
    network = folder / "network"
    transformers.AutoModel.from_config(hugging_face_config("bert", num_hidden_layers=2)).save_pretrained(network)
    save_tokenizer(bert_tokenizer(), network)
    encoder = Transformer(str(network), max_seq_length=48)
    model = SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension(), "mean"), Normalize()])
    model.save(str(folder / "model"))
    return folder / "model"


def made(source: Path, folder: Path, corpus: list[str] = CORPUS) -> Search:
    return vector_search(corpus, str(source), folder, device="cpu", precision="fp32", candidate_length=40)


def test_the_best_cosines_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the library's own cosines, however the corpus is cut into blocks; known texts have theirs."""
    source = sentence_encoder(tmp_path)
    model = SentenceTransformer(str(source), device="cpu")
    cosines = model.encode(QUESTIONS) @ model.encode(CORPUS).T
    results = {}
    for block in (7, 1000):
        monkeypatch.setattr(module, "BLOCK", block)
        results[block] = list(made(source, tmp_path / "store")(QUESTIONS, KNOWN, 10))
    for hits, other, row, numbers in zip(results[7], results[1000], cosines, KNOWN, strict=True):
        assert hits.numbers == other.numbers
        assert hits.scores == pytest.approx(np.sort(row)[::-1][:10], abs=2e-3)
        assert row[hits.numbers] == pytest.approx(hits.scores, abs=2e-3)
        assert hits.known == pytest.approx(row[numbers], abs=2e-3)


def test_a_checkpoints_first_stage_searches(tmp_path: Path) -> None:
    """In the order of its own scores; a checkpoint without one is refused."""
    ranker = random_ranker(body_layers=1, heads=1, exits=(), num_hidden_layers=2)
    named = {"card": "# random\n", "version": "1", "source": "tests"}
    export_checkpoint(ranker, bert_tokenizer(), tmp_path / "without", **named, forms=Forms(precisions=()))
    plain = read_checkpoint(tmp_path / "without")
    checkpoint = attached(plain, tmp_path / "with", precisions=())
    first = open_first_stage(checkpoint, kind="torch", precision="fp32")
    hits = made(checkpoint.path, tmp_path / "store")(QUESTIONS, KNOWN, 5)
    for question, each in zip(QUESTIONS, hits, strict=True):
        scores = first.compute(first.read(question, CORPUS))
        assert each.scores == pytest.approx(np.sort(scores)[::-1][:5], abs=1e-3)
        assert scores[each.numbers] == pytest.approx(each.scores, abs=1e-3)
    with pytest.raises(CheckpointError, match="has no first stage"):
        made(plain.path, tmp_path / "other")


def test_a_bi_encoder_of_pairwise_ranks_by_its_own_rankers(tmp_path: Path) -> None:
    """Probabilities; and a store of another corpus is refused."""
    ranker = text_ranker(TR_TWIN)
    write_text_ranker(tmp_path / "twin", ranker, bert_tokenizer(), version="1", source="tests")
    hits = list(made(tmp_path / "twin", tmp_path / "store")(QUESTIONS, KNOWN, 60))
    assert all(sorted(each.numbers) == list(range(60)) for each in hits)
    for each, numbers in zip(hits, KNOWN, strict=True):
        assert each.known == pytest.approx(each.scores[[each.numbers.index(number) for number in numbers]])
    assert all(each.scores.min() >= 0 and each.scores.max() <= 1 for each in hits)
    with pytest.raises(BoundError, match="begun with inputs "):
        made(tmp_path / "twin", tmp_path / "store", CORPUS[:-1])

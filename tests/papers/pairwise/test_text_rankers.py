"""TRMD's systems on a pretrained encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.text_rankers import ENCODING, with_unused_tokens
from tests.tiny import save_cross_encoder
from transformers import AutoModel, AutoTokenizer

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.network.texts import Texts
from cerberank_models.text_config import TextEncodingConfig
from cerberank_models.text_encoding import TextEncoder
from cerberank_papers.pairwise.settings import SYSTEMS
from cerberank_papers.pairwise.text_rankers import build_text_ranker
from cerberank_training.runs.base import open_base


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_the_encoder_is_hugging_faces(family: str, tmp_path: Path) -> None:
    """Token vectors of a text alone equal those of the model that the weights come from."""
    base = open_base(str(save_cross_encoder(family, tmp_path)))
    ranker, tokenizer = build_text_ranker(SYSTEMS["twin"], base, name="twin", encoding=ENCODING, seed=1, dropout=0.0)
    text = "how tall is the tower" if family != "roberta" else "the tower"
    encoded = TextEncoder(tokenizer, ranker.config).questions([text])
    side = ranker.eval().alone(Texts.on(torch.device("cpu"), encoded))
    source = AutoModel.from_pretrained(base.place).eval()
    wanted = source(input_ids=torch.from_numpy(encoded.token_ids).long()[None]).last_hidden_state[0]
    assert torch.allclose(side.tokens, wanted, atol=1e-5)
    assert AutoTokenizer.from_pretrained(base.place).backend_tokenizer.to_str() == tokenizer.to_str()


def test_colberts_texts_are_read_as_its_own_code_reads_them(tmp_path: Path) -> None:
    """The score by hand on Hugging Face's encoder, with attention masked on [MASK]: all of the question's vectors, and
    those of the document but for punctuation.
    """
    base = open_base(str(with_unused_tokens(save_cross_encoder("bert", tmp_path))))
    encoding = TextEncodingConfig(question_length=8, document_length=30, window=30)
    ranker, tokenizer = build_text_ranker(
        SYSTEMS["colbert"], base, name="c", encoding=encoding, seed=1, dropout=0.0, colbert_texts=True
    )
    source, encoder = AutoModel.from_pretrained(base.place).eval(), TextEncoder(tokenizer, ranker.config)

    def vectors(ids: list[int]) -> torch.Tensor:
        mask = torch.tensor([[number != mask_id for number in ids]]).long()
        hidden = source(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state[0]
        return torch.nn.functional.normalize(hidden @ ranker.token_ranker.project.weight.T, dim=-1)

    names, texts = ("CLS", "SEP", "MASK", "unused0", "unused1"), ("who do bees make ?", "honey , . is it -")
    cls, sep, mask_id, q, d = (tokenizer.token_to_id(f"[{name}]") for name in names)
    asked, said = (tokenizer.encode(text, add_special_tokens=False).ids for text in texts)
    symbols = {tokenizer.token_to_id(symbol) for symbol in ",.?'-"}
    question = vectors([cls, q, *asked, sep, *[mask_id] * (8 - len(asked))])
    document = [cls, d, *said, sep]
    kept = vectors(document)[[number not in symbols for number in document]]
    assert len(kept) == len(document) - 3
    device, owners = torch.device("cpu"), torch.tensor([0])
    questions, documents = encoder.questions(texts[:1]), encoder.documents(texts[1:])
    reading = ranker.eval()(Texts.on(device, questions), Texts.on(device, *documents), owners)
    wanted = (question @ kept.T).amax(dim=1).sum()
    assert reading.scores[0].item() == pytest.approx(wanted.item(), abs=1e-4)
    assert torch.equal(reading.document.offsets, torch.tensor([0, len(kept)]))
    assert len(reading.document.hidden) == len(kept)


def test_a_vocabulary_without_colberts_tokens_is_refused(tmp_path: Path) -> None:
    """A base of another family; systems without ColBERT's bi-encoder do not read them."""
    base = open_base(str(save_cross_encoder("roberta", tmp_path)))
    for name in ("twin", "mono", "trmd-joint-colbert"):
        ranker, _ = build_text_ranker(
            SYSTEMS[name], base, name="s", encoding=ENCODING, seed=1, dropout=0.0, colbert_texts=True
        )
        assert ranker.config.encoding == ENCODING
    with pytest.raises(UnsupportedModelError, match=r"has no \[unused0\], \[unused1\], \[MASK\]"):
        build_text_ranker(
            SYSTEMS["colbert"], base, name="s", encoding=ENCODING, seed=1, dropout=0.0, colbert_texts=True
        )


def test_fresh_parts_follow_the_seed(tmp_path: Path) -> None:
    """Rankers 1 and 2 start differently, equal for equal seeds, and the encoder is the same for all."""
    base = open_base(str(save_cross_encoder("bert", tmp_path)))
    first, again, other = (
        build_text_ranker(SYSTEMS["tr-twin"], base, name="s", encoding=ENCODING, seed=seed, dropout=0.0)[0].state_dict()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["first_ranker.dense.weight"], first["token_ranker.dense.weight"])
    assert not torch.equal(first["first_ranker.dense.weight"], other["first_ranker.dense.weight"])
    assert torch.equal(first["body.1.up.weight"], other["body.1.up.weight"])

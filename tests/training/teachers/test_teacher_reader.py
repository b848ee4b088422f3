"""A teacher's input: its own tokenizer's pairs, or segments with context as its checkpoint reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tiny import save_cross_encoder
from transformers import AutoConfig, AutoTokenizer, BertConfig, PreTrainedTokenizerFast

from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.transformer import Family
from cerberank_training.data.sampling import Group
from cerberank_training.teachers.teacher_reader import TeacherReader

PAIRS = [
    ("how tall is the tower ?", Candidate(text="in the word", previous="it was built", next="the river")),
    ("how tall is the tower ?", Candidate(text="in paris " * 9, previous="the word " * 9)),
    ("what do bees make ? " * 9, Candidate(text="honey", next="the city " * 9)),
    ("what", Candidate(text="")),
]


def opened(family: str, folder: Path, types: int) -> tuple[Any, Any]:
    save_cross_encoder(family, folder, type_vocab_size=types)
    return AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder)


@pytest.mark.parametrize("length", [24, 64])
@pytest.mark.parametrize("types", [1, 2, 3])
@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_context_is_read_as_the_checkpoint_reads_it(family: Family, types: int, length: int, tmp_path: Path) -> None:
    """Tokens and types are those of the `PairEncoder` that the imported teacher has, also of pairs that are cut."""
    tokenizer, model = opened(family, tmp_path, types)
    encoding = TeacherInput(max_length=length, context=True)
    got = TeacherReader(tokenizer, model, encoding)(PAIRS)
    served = PairEncoder(tokenizer.backend_tokenizer, family=family, config=encoding.encoding(), type_vocab_size=types)
    for row, (question, candidate) in enumerate(PAIRS):
        pair = served.encode(question, [candidate])
        assert got["input_ids"][row] == pair.token_ids.tolist()
        assert len(pair.token_ids) <= length
        if types > 1:
            assert got["token_type_ids"][row] == pair.type_ids.tolist()
    assert ("token_type_ids" in got) == (types > 1)


def test_an_enlarged_roberta_has_types_without_context_too(tmp_path: Path) -> None:
    """Its tokenizer gives none, the checkpoint that it becomes does."""
    tokenizer, model = opened("roberta", tmp_path, 3)
    got = TeacherReader(tokenizer, model, TeacherInput(max_length=64))(PAIRS[:1])
    assert set(got["token_type_ids"][0]) == {0, 1}


@pytest.mark.parametrize("context", [True, False])
def test_pairs_that_do_not_fit_are_counted(context: bool, tmp_path: Path) -> None:
    """Two of four pairs are longer than 24 tokens, in the candidate or in the question."""
    tokenizer, model = opened("bert", tmp_path, 2)
    groups = [
        Group(question=question, candidates=(Candidate(text=candidate.text),), labels=(1.0,))
        for question, candidate in PAIRS
    ]
    for length, cut in ((24, 2), (64, 0)):
        reader = TeacherReader(tokenizer, model, TeacherInput(max_length=length, context=context))
        assert reader.count_cut(groups) == (cut, 4)


def test_unknown_special_tokens_are_refused() -> None:
    """The beginning of a third segment would be unknown."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=_tokenizer(), cls_token="<cls>", sep_token="<sep>")
    with pytest.raises(ValueError, match="not <cls> and <sep>"):
        TeacherReader(tokenizer, BertConfig(), TeacherInput(context=True))


def _tokenizer() -> Any:
    from tests.tiny import bert_tokenizer

    return bert_tokenizer()

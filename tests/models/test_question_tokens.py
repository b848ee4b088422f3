"""The part that is read of a question which is too long."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoders import qwen_tokenizer
from tests.tiny import bert_tokenizer

from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.convert.prompts import PROMPTS
from cerberank_models.frame import prompt_frame
from cerberank_models.question_tokens import QuestionTokens
from cerberank_models.ranker import Ranker
from cerberank_models.text_config import QuestionPart
from cerberank_models.token_cache import TokenCache

LONG = "a b c d e a b c d e a b c"


def words(question: str, part: QuestionPart = "end") -> tuple[str, bool]:
    tokenizer = bert_tokenizer()
    tested = QuestionTokens(tokenizer, limit=12, part=part, characters=200, digest="d")
    cache, read = TokenCache(10_000), []
    for _ in range(2):
        (ids,), (cut,) = tested([question], cache, "")
        read.append((tokenizer.decode(memoryview(ids).cast("i").tolist()), bool(cut)))
    assert read[0] == read[1]
    return read[0]


@pytest.mark.parametrize(
    ("question", "part", "left"),
    [
        ("how tall\nis it", "end", "how tall is it"),
        (LONG, "end", "b c d e a b c d e a b c"),
        (LONG, "start", "a b c d e a b c d e a b"),
        (f"{LONG}\nhow tall is the tower ?", "end", "how tall is the tower?"),
        (f"{LONG}\nhow tall is the tower ?\n \n", "end", "how tall is the tower?"),
        (f"{LONG}\nhow tall is the tower ?\nd :", "end", "how tall is the tower? d"),
        (f"{LONG}\r\nhow\r\ntall ?", "end", "e a b c d e a b c how tall?"),
        (f"how tall\n{LONG}", "end", "b c d e a b c d e a b c"),
        ("a " * 200 + "\nhow tall is the tower ?", "end", "how tall is the tower?"),
        ("how tall is the tower ?" + "\n" * 300, "end", "how tall is the tower?"),
    ],
)
def test_the_last_line_of_a_question_is_read_or_its_end(question: str, part: QuestionPart, left: str) -> None:
    """A question that fits is read whole; a last line of fewer than five tokens with the lines before it."""
    assert words(question, part) == (left, question != "how tall\nis it")


@pytest.mark.parametrize("name", PROMPTS)
@given(st.integers(0, 60))
@settings(max_examples=20)
def test_a_prompt_keeps_what_stands_around_a_cut_question(name: str, count: int) -> None:
    """The tokens before and behind the question, and the end of a question in between."""
    tokenizer, prompt = qwen_tokenizer(), PROMPTS[name].prompt
    frame = prompt_frame(tokenizer, prompt, None)
    (ids,), _ = QuestionTokens(tokenizer, limit=40, part="end", characters=500, digest=None)(
        ["x" + "y" * count + "z"], None, "", frame
    )
    before, behind = frame.around_question
    text = tokenizer.decode(memoryview(ids).cast("i").tolist(), skip_special_tokens=False)
    assert len(ids) <= 160
    assert text.startswith(before.rstrip(" "))
    assert text.endswith(f"z{behind}")


def test_a_chat_is_ranked_as_the_question_that_it_ends_with() -> None:
    """The history before it, which is longer than the bundled model's limit, is not read; a warning says so."""
    question = "How tall is the Eiffel Tower?"
    texts = ["Lyon is on the Rhone.", "It is 330 metres tall.", "It was built for the fair of 1889."]
    history = "User: Which river is Lyon on?\nAssistant: Lyon is on the Rhone, where the Saone flows into it.\n"
    ranker = Ranker.load(BUNDLED)
    alone, chat = ranker.rank(question, texts), ranker.rank(4 * history + question, texts)
    assert chat[0].text == texts[1]
    assert [result.score for result in chat] == [result.score for result in alone]
    assert (alone.warnings, len(chat.warnings)) == ((), 1)
    assert "only the question's end was read: at most 48 tokens fit" in chat.warnings[0]


def test_a_prompt_as_long_as_the_limit_leaves_nothing_of_a_long_question() -> None:
    """The text before the question is kept, and no more."""
    tokenizer, prompt = qwen_tokenizer(), PROMPTS["mxbai-rerank-v2"].prompt
    frame = prompt_frame(tokenizer, prompt, None)
    tested = QuestionTokens(tokenizer, limit=frame.before_question, part="end", characters=500, digest=None)
    (ids,), (cut,) = tested(["how tall is the tower"], None, "", frame)
    assert cut
    assert len(ids) == 4 * frame.before_question

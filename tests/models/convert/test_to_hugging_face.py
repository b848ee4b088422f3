"""Models that can be a sequence classifier, told from a configuration, and the alternatives for the others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tiny import random_ranker

from cerberank_models.config import EncodingConfig, RankerConfig
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.to_hugging_face import check_exportable, one_head
from cerberank_models.text_config import TextEncodingConfig, TextRankerConfig
from cerberank_models.transformer import OpaqueTransformer, PairTemplate

PLAIN = random_ranker(heads=1, exits=()).config
OPAQUE = {
    "transformer": OpaqueTransformer(
        family="opaque", model_type="deberta-v2", vocab_size=9, layers=4, max_positions=48
    ).model_dump(),
    "architecture": {"body_layers": 4, "heads": 0, "head_layers": 0},
    "exits": [{"after": 4, "pooling": "first"}],
    "encoding": EncodingConfig(max_length=48, question_length=16, template=PairTemplate("[CLS]", "[SEP]")).model_dump(),
}
FIRST = TextRankerConfig(
    encoder="0" * 64,
    transformer=PLAIN.body,
    token_ranker="twin",
    encoding=TextEncodingConfig(question_length=32, document_length=32, window=32),
).model_dump()


def changed(**changes: Any) -> RankerConfig:
    return RankerConfig.model_validate(PLAIN.model_dump() | changes)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (changed(**OPAQUE), r"opaque graph \(deberta-v2\) .* what it was imported from is its Hugging Face form"),
        (changed(encoding=PLAIN.encoding.model_dump() | {"segments": 3}), "a third segment"),
        (changed(architecture={"body_layers": 4, "heads": 0}, exits=[{"after": 4}]), "has no heads"),
        (changed(exits=[{"after": 2}]), r"B3 1H1 with exits, .* --head N \(1\) exports that head"),
        (changed(first_stage=FIRST), r"B3 1H1 with a first stage"),
        (random_ranker(heads=2, exits=()).config, r"B3 2H1 with 2 heads, .* --head N \(1 to 2\)"),
    ],
)
def test_what_has_no_such_form_is_refused(config: RankerConfig, message: str) -> None:
    """The message says why, and names --head where that is possible."""
    with pytest.raises(UnsupportedModelError, match=message):
        check_exportable(config, None)
    if "--head" in message:
        check_exportable(config, 1)


def test_a_plain_head_needs_no_number() -> None:
    """One head without exits; a number that is not a head is refused."""
    check_exportable(PLAIN, None)
    with pytest.raises(UnsupportedModelError, match="--head is from 1 to 1, not 2"):
        check_exportable(PLAIN, 2)


def test_one_head_is_a_ranker_of_its_own() -> None:
    """B3 1H1 with that head's weights, without exits."""
    ranker = random_ranker()
    single = one_head(ranker, 2)
    assert (str(single.config.architecture), single.config.exits) == ("B3 1H1", ())
    ours, theirs = single.state_dict(), ranker.state_dict()
    assert ours["heads.0.classifier.dense.weight"].equal(theirs["heads.1.classifier.dense.weight"])
    assert ours["body.2.up.weight"].equal(theirs["body.2.up.weight"])

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tests.text_rankers import ENCODING, JOINT_TWIN, MONO, NAMES, SHAPES, TR_TWIN, TWIN
from tests.tiny import hugging_face_config, random_ranker

from cerberank_models.config import DropSchedule, RankerConfig
from cerberank_models.convert.from_hugging_face import transformer_config
from cerberank_models.drop import RatioSchedule
from cerberank_models.text_config import TextEncodingConfig, TextRankerConfig

TEXT_TRANSFORMER = transformer_config(hugging_face_config("bert"))


def changed(**changes: object) -> dict[str, object]:
    return {**random_ranker().config.model_dump(), **changes}


def transformer(**changes: object) -> dict[str, object]:
    return {**random_ranker().config.transformer.model_dump(), **changes}


def test_stages_follow_exits_and_heads() -> None:
    """Every exit ends a stage, the heads end the last one."""
    stages = random_ranker(exits=(1, 2)).config.stages
    assert [(stage.start, stage.stop, stage.kind) for stage in stages] == [
        (0, 1, "exit"),
        (1, 2, "exit"),
        (2, 3, "heads"),
    ]


def test_a_plain_encoder_ends_in_its_last_exit() -> None:
    """Without heads the exit after the last layer gives the final score (CT)."""
    config = random_ranker(body_layers=4, heads=0, exits=(2, 4)).config
    assert [stage.kind for stage in config.stages] == ["exit", "exit"]
    assert config.schedule == (0.0,)


def test_the_reading_of_long_texts_stands_in_the_file_only_if_it_is_not_the_usual_one() -> None:
    """So that older versions read the checkpoints whose texts are read as they read them."""
    usual = random_ranker().config
    assert "windows" not in usual.model_dump_json()
    encoding = usual.encoding.model_copy(update={"windows": "off"})
    cutting = usual.model_copy(update={"encoding": encoding})
    assert RankerConfig.model_validate_json(cutting.model_dump_json()) == cutting


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exits": [{"after": 2}, {"after": 1}]}, "ascending"),
        ({"exits": [{"after": 4}]}, "ascending"),
        ({"drop_schedule": [0.3]}, "needs 2 ratios"),
        ({"drop_schedule": [0.3, 1.0]}, "less than 1"),
        ({"tuned_schedules": [{"schedule": [0.3], "cost": 0.8, "metrics": {}}]}, "every tuned schedule needs 2 ratios"),
        (
            {"tuned_schedules": [{"schedule": [0, 0], "cost": cost, "metrics": {}} for cost in (0.5, 1.0)]},
            "costliest to the cheapest",
        ),
        ({"tuned_schedules": 65 * [{"schedule": [0, 0], "cost": 1.0, "metrics": {}}]}, "at most 64 items"),
        ({"tuned_schedules": [{"schedule": [0, 0], "cost": 1.0, "metrics": {"a\nb": 1}}]}, "should match pattern"),
        ({"tuned_schedules": [{"schedule": [0, 0], "cost": 1.0, "metrics": {"m" * 65: 1}}]}, "should match pattern"),
        (
            {
                "tuned_schedules": [
                    {"schedule": [0, 0], "cost": 1.0, "metrics": {f"m{first + number}": 1 for number in range(40)}}
                    for first in (0, 40)
                ]
            },
            "more than 64 different metrics",
        ),
        ({"surprise": 1}, "surprise"),
        ({"encoding": {"max_length": 512}}, "positions"),
        ({"name": "../up"}, "name"),
        ({"transformer": transformer(layers=9)}, "B3 3H1 needs 4 layers"),
        ({"encoding": {"max_length": 40, "question_length": 34}}, "at most max_length - 7"),
        ({"architecture": {"body_layers": 4, "heads": 0}, "exits": [{"after": 2}]}, "after its last layer"),
        (
            {
                "architecture": {"body_layers": 0, "heads": 0, "head_layers": 0},
                "exits": [],
                "transformer": transformer(layers=0),
            },
            "a first stage that ranks alone",
        ),
    ],
)
def test_a_wrong_configuration_is_refused(changes: dict[str, object], message: str) -> None:
    """The message names what is wrong."""
    with pytest.raises(ValidationError, match=message):
        RankerConfig.model_validate(changed(**changes))


def test_what_each_stage_costs() -> None:
    """Body layers, and the three heads' first-token layers together half a layer; a second head layer counts fully."""
    assert random_ranker(exits=(1, 2)).config.stage_layers == (1.0, 1.0, 1.5)
    assert random_ranker(body_layers=4, heads=0, exits=(2, 4)).config.stage_layers == (2.0, 2.0)
    one = changed(architecture={"body_layers": 3, "heads": 1}, exits=[])
    assert RankerConfig.model_validate(one).stage_layers == (3.5,)
    two = changed(architecture={"body_layers": 2, "heads": 3, "head_layers": 2}, exits=[{"after": 1}])
    assert RankerConfig.model_validate(two).stage_layers == (1.0, 4.5)


def test_a_mean_needs_whole_layers() -> None:
    """If the classifier reads the mean of all tokens, each head's last layer is a whole one."""
    mean = {"body_layers": 3, "heads": 3, "classifier_pooling": "mean"}
    config = RankerConfig.model_validate(changed(architecture=mean, exits=[{"after": 1}]))
    assert config.stage_layers == (1.0, 5.0)


@pytest.mark.parametrize(("family", "changes"), [("bert", {}), ("modernbert", {"classifier_pooling": "mean"})])
def test_fields_that_earlier_releases_lack_are_written_where_they_say_something(
    family: str, changes: dict[str, object]
) -> None:
    """BERT's config.json has none of them, and ModernBERT's is read back equal."""
    config = random_ranker(family=family, **changes).config
    text = config.model_dump_json()
    assert RankerConfig.model_validate_json(text) == config
    for name in ("pre_norm", "classifier_bias", "classifier_pooling"):
        assert (f'"{name}"' in text) == (family == "modernbert")


def test_a_gated_feed_forward_counts_with_its_gate() -> None:
    """A first stage's cost is told in layers of the pairs' encoder, by the weights of its linear maps."""
    layer = {family: random_ranker(family=family).config.transformer for family in ("bert", "modernbert")}
    first = {"encoder": "0" * 64, "token_ranker": "dot", "transformer": layer["modernbert"].model_dump()}
    first |= {"encoding": {"question_length": 8, "document_length": 16, "window": 16}}
    config = RankerConfig.model_validate(changed(first_stage=first))
    width, inner = 32, 64
    expected = 4 * (4 * width + 3 * inner) / (4 * width + 2 * inner)
    assert config.scored_stage_layers[0] == pytest.approx(expected)


def test_heads_without_a_layer_cost_nothing() -> None:
    """Classifiers on the body's last layer: a stage of no layer after an exit there, or of the layers since."""
    architecture = {"body_layers": 4, "heads": 3, "head_layers": 0}
    costs = [
        RankerConfig.model_validate(changed(architecture=architecture, exits=[{"after": after}])).stage_layers
        for after in (2, 4)
    ]
    assert costs == [(2.0, 2.0), (4.0, 0.0)]


def test_a_policy_is_the_caller_s_or_the_checkpoint_s() -> None:
    """The checkpoint's minimum holds for its own schedule and for one that stands in for it, not for a caller's."""
    config = RankerConfig.model_validate(changed(exits=[{"after": 1}], drop_schedule=[0.3], drop_minimum=5))
    assert config.drop_policy() == RatioSchedule((0.3,), 5)
    assert config.drop_policy(keep=9) == RatioSchedule((0.3,), 9)
    assert config.drop_policy(default=DropSchedule(schedule=(0.1,))) == RatioSchedule((0.1,), 5)
    assert config.drop_policy(0.5, default=DropSchedule(schedule=(0.1,)), keep=2) == RatioSchedule((0.5,), 2)
    with pytest.raises(ValueError, match="not 2"):
        config.drop_policy((0.5, 0.5))
    with pytest.raises(ValueError, match="below 1"):
        config.drop_policy(1.0)


def test_the_schedule_is_that_of_the_number_of_candidates() -> None:
    """Longer lists ascend, and have a ratio for each exit or none; a config without them is written as before."""
    longer = [{"candidates": 100, "schedule": [0.5], "lexical_ratio": 0.2}, {"candidates": 1000, "lexical_ratio": 0.5}]
    given = changed(exits=[{"after": 1}], drop_schedule=[0.3])
    config = RankerConfig.model_validate(given | {"longer_lists": longer})
    chosen = [config.drop_policy(candidates=count) for count in (1, 99, 100, 999, 1000)]
    short, long = RatioSchedule((0.3,)), RatioSchedule((0.5,), lexical=0.2)
    assert chosen == [short, short, long, long, RatioSchedule((0.0,), lexical=0.5)]
    assert [(each.lexical_ratio, each.schedule) for each in config.defaults] == [
        (0, (0.3,)),
        (0.2, (0.5,)),
        (0.5, (0,)),
    ]
    assert (config.drops_lexically, RankerConfig.model_validate(given).drops_lexically) == (True, False)
    assert not {"lexical_ratio", "longer_lists"} & RankerConfig.model_validate(given).model_dump().keys()
    assert RankerConfig.model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ValidationError, match="ascending"):
        RankerConfig.model_validate(given | {"longer_lists": longer[::-1]})
    with pytest.raises(ValidationError, match="1 ratios"):
        RankerConfig.model_validate(given | {"longer_lists": [{"candidates": 9, "schedule": [0.1, 0.1]}]})


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_the_papers_text_rankers_survive_json(shape: dict[str, object]) -> None:
    """Written and read again they are equal."""
    config = TextRankerConfig(name="s", transformer=TEXT_TRANSFORMER, encoding=ENCODING, **shape)
    assert TextRankerConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "first_ranker or token_ranker"),
        ({**MONO, "joint": False}, "needs joint"),
        ({**JOINT_TWIN, "encoding": TextEncodingConfig(question_length=30, window=32)}, "are 65, the encoder has 64"),
        ({**TWIN, "encoding": TextEncodingConfig(question_length=30, window=63)}, "are 65, the encoder has 64"),
        ({**TR_TWIN, "token_ranker": "dot"}, "goes with neither first_ranker nor joint"),
    ],
)
def test_wrong_text_rankers_are_refused(changes: dict[str, object], message: str) -> None:
    """Each with a message that says why; 30 + 32 + three special tokens are one too many, as are 63 + two."""
    with pytest.raises(ValueError, match=message):
        TextRankerConfig.model_validate(
            {"name": "s", "transformer": TEXT_TRANSFORMER, "encoding": TextEncodingConfig(window=16), **changes}
        )


@pytest.mark.parametrize(
    ("changes", "message"), [(JOINT_TWIN, "cannot be a first stage"), (TWIN, "must not exceed window")]
)
def test_a_first_stage_reads_texts_alone_and_at_once(changes: dict[str, object], message: str) -> None:
    """A cross-encoder and one with windows are refused."""
    first = TextRankerConfig(transformer=TEXT_TRANSFORMER, encoding=ENCODING, **changes)
    with pytest.raises(ValueError, match=message):
        RankerConfig.model_validate(changed(first_stage=first.model_dump()))


def test_languages_that_are_not_stated_are_not_written() -> None:
    """Earlier releases refuse keys that they do not know; codes are of ISO 639-1."""
    plain = RankerConfig.model_validate(changed())
    assert "languages" not in plain.model_dump_json()
    stated = RankerConfig.model_validate(changed(languages=["en", "de"]))
    assert RankerConfig.model_validate_json(stated.model_dump_json()).languages == ("en", "de")
    with pytest.raises(ValueError, match="languages"):
        RankerConfig.model_validate(changed(languages=["English"]))

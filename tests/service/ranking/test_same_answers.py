"""A question has one answer: `Ranker`, `cerberank rank` and `POST /v1/rank` give the same, or refuse alike."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.calibrations import calibration, curves
from tests.program import program
from tests.service.conftest import apps, once_ready, unset
from tests.service.fakes import FakeBackend, checkpoint_for, ranker_config
from tests.service.first_stages import FakeVectors, config_with_first_stage, loaded_with_first_stage

from cerberank_models.config import EncodingConfig
from cerberank_models.ranker import Ranker
from cerberank_models.transformer import PromptTemplate
from cerberank_service.versions.loading import Loaded

LONG = "it was built for the fair of 1889. " * 6
TEXTS = [
    "330 metres",
    "330 metres",
    "it is tall",
    "in paris",
    "what do bees make",
    "honey",
    LONG,
    LONG + "1",
    "",
    "\u0e01",
]
PROMPT = PromptTemplate(instruction=("{instruction}",), tail=("?",), default_instruction="rank", yes="a")
MODELS = ("calibrated", "first stage", "prompt")

candidates = st.builds(
    lambda text, around: {"text": text} | around,
    st.sampled_from(TEXTS),
    st.sampled_from([{}, {}, {"id": 7}, {"id": "b", "previous": "before"}, {"next": "behind"}]),
)
ratios = st.sampled_from([None, 0.0, 0.3, 0.5, 0.9, [0.5], [0.5, 0.25], [0.5, 0.0, 0.25]])
options = st.fixed_dictionaries(
    {},
    optional={
        "top_k": st.integers(1, 12),
        "min_score": st.sampled_from([0.2, 0.5]),
        "min_precision": st.sampled_from([0.5, 0.9, 0.99]),
        "drop_ratio": ratios,
        "lexical_ratio": st.sampled_from([0.0, 0.3, 0.5, 0.9]),
        "windows": st.sampled_from(["best", "mean", "off"]),
        "instruction": st.sampled_from(["", "find food", "a" * 200]),
    },
)


@dataclass
class Doors:
    """One model behind a service and in this process."""

    client: TestClient
    ranker: Ranker
    folder: Path

    def by_http(self, body: dict[str, Any]) -> dict[str, Any] | str:
        """The answer without what only a service tells, or the message of the refusal."""
        response = self.client.post("/v1/rank", json=body | {"return_heads": True, "return_text": True})
        if response.status_code == 422:
            return str(response.json()["error"]["message"])
        answer: dict[str, Any] = response.raise_for_status().json()
        return {name: value for name, value in answer.items() if name not in ("id", "timing_ms", "expected_loss")}

    def in_python(self, body: dict[str, Any]) -> dict[str, Any] | str:
        try:
            return self.ranker.rank(**body, return_heads=True).to_json()
        except ValueError as error:
            return str(error)

    def by_command(self, question: dict[str, Any], **chosen: Any) -> dict[str, Any]:
        path = self.folder / "questions.jsonl"
        path.write_text(json.dumps(question))
        words = [str(path), "--return-text", "--return-heads"]
        for name, value in chosen.items():
            values = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", ",".join(map(str, values))]
        with redirect_stdout(io.StringIO()) as output, pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ranker, "load", lambda *given, **named: self.ranker)
            assert program("rank")(words) == 0
        return json.loads(output.getvalue())


def loaded(model: str, folder: Path) -> Loaded:
    if model == "first stage":
        config = config_with_first_stage((0.5, 0.3, 0.0))
        assert config.first_stage is not None
        backend = FakeBackend(config)
        opened = loaded_with_first_stage(checkpoint_for(backend, folder), FakeVectors(config.first_stage), backend)
    else:
        config = ranker_config(schedule=(0.5, 0.3)).model_copy(update={"drop_minimum": 3})
        if model == "prompt":
            encoding = EncodingConfig(max_length=64, question_length=24, prompt=PROMPT, windows="mean")
            config = config.model_copy(update={"encoding": encoding, "languages": ("de",)})
        opened = Loaded(checkpoint_for(FakeBackend(config), folder), FakeBackend(config))
    if model == "prompt":
        return opened
    fitted = calibration(stages=curves(config.scored_stages))
    return replace(opened, checkpoint=replace(opened.checkpoint, calibration=fitted))


@pytest.fixture(scope="module", params=MODELS)
def doors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path
) -> Iterator[Doors]:
    """Vectors are not cached, because `usage` counts the tokens that were computed."""
    folder = tmp_path_factory.mktemp("same-answers")
    opened = loaded(request.param, folder)
    with pytest.MonkeyPatch.context() as environment, apps(tiny_checkpoint) as start:
        unset(environment)
        client = once_ready(start(lambda checkpoint, settings: opened, vector_cache_bytes=0))
        yield Doors(client, Ranker(opened.checkpoint, opened.backend, opened.first_stage), folder)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    question=st.sampled_from(["how tall is it?", "where is the tower that was built for the fair", "\u0e01 \u0e02"]),
    listed=st.lists(candidates, min_size=1, max_size=14),
    chosen=options,
)
def test_every_door_gives_the_same_answer(
    doors: Doors, question: str, listed: list[dict[str, Any]], chosen: dict[str, Any]
) -> None:
    """Results, scores, stages, windows, usage and warnings are equal, whatever texts come twice or are too long."""
    body = {"question": question, "candidates": listed}
    answer = doors.by_http(body | chosen)
    assert doors.in_python(body | chosen) == answer
    known = {name: chosen[name] for name in ("top_k", "drop_ratio", "windows") if chosen.get(name) is not None}
    if isinstance(answer, dict) and len(known) == len({name for name in chosen if chosen[name] is not None}):
        assert doors.by_command(body, **known) == answer


def test_copies_of_a_text_are_dropped_as_one(doors: Doors) -> None:
    """Eight equal texts and two others are three candidates for the ratio, so that one is dropped."""
    answer = doors.ranker.rank("how tall is it?", ["honey"] * 8 + ["330 metres", "in paris"], drop_ratio=0.5)
    assert len({(result.stage, result.score) for result in answer if result.text == "honey"}) == 1
    assert sum(result.stage == 0 for result in answer) in (1, 8)

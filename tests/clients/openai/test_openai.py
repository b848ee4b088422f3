"""OpenAI's SDK: the list of models, which other programs read to offer a choice."""

from __future__ import annotations

import openai
import pytest

from conftest import Task


def test_models(task: Task) -> None:
    """The served name is listed and found; another one is the SDK's own exception."""
    with openai.OpenAI(base_url=f"{task.url}/v1", api_key="none") as client:
        assert task.model in [each.id for each in client.models.list()]
        assert client.models.retrieve(task.model).created > 0
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("another")

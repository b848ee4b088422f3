"""OpenAI's SDK: the list of models, which other programs read to offer a choice."""

from __future__ import annotations

import openai
import pytest


def test_models(url: str, model: str) -> None:
    """The served name is listed and found; another one is the SDK's own exception."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        assert model in [each.id for each in client.models.list()]
        assert client.models.retrieve(model).created > 0
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("another")

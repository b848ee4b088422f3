"""OpenAI's SDK: the list of models, which other programs read to offer a choice, and the error of embeddings."""

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


def test_embeddings_need_a_bi_encoder(task: Task) -> None:
    """The bundled model has none, which is the SDK's own exception with the remedy."""
    with (
        openai.OpenAI(base_url=f"{task.url}/v1", api_key="none") as client,
        pytest.raises(openai.BadRequestError, match="checkpoint first-stage"),
    ):
        client.embeddings.create(model=task.model, input=task.documents)

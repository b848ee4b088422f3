"""Triton's HTTP client: metadata, configuration, probes and binary tensors."""

from __future__ import annotations

import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException


def test_infer(url: str, question: str, texts: list[str], model: str, order: list[int]) -> None:
    """Question and candidates as binary tensors; the order comes back."""
    inputs = [triton.InferInput("question", [1], "BYTES"), triton.InferInput("candidates", [len(texts)], "BYTES")]
    inputs[0].set_data_from_numpy(np.array([question], dtype=object))
    inputs[1].set_data_from_numpy(np.array(texts, dtype=object))
    client = triton.InferenceServerClient(url.removeprefix("http://"))
    answer = client.infer(model, inputs)
    client.close()
    assert answer.as_numpy("order").tolist() == order


def test_what_describes_a_model(url: str, model: str) -> None:
    """Metadata and configuration name the same tensors, and probes say that it is ready."""
    client = triton.InferenceServerClient(url.removeprefix("http://"))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(model)
    metadata, config = client.get_model_metadata(model), client.get_model_config(model)
    assert [each["name"] for each in config["input"]] == [each["name"] for each in metadata["inputs"]]
    client.close()


def test_an_unknown_model_or_path_is_its_own_exception(url: str) -> None:
    """Its message is the service's."""
    client = triton.InferenceServerClient(url.removeprefix("http://"))
    with pytest.raises(InferenceServerException, match="there is no model"):
        client.get_model_config("another")
    with pytest.raises(InferenceServerException, match="there is no such path"):
        client.get_model_repository_index()
    client.close()

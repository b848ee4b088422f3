"""Triton's HTTP client: metadata, configuration, probes and binary tensors."""

from __future__ import annotations

import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException

from conftest import Task


def test_infer(task: Task) -> None:
    """Question and candidates as binary tensors; the order comes back."""
    inputs = [triton.InferInput("question", [1], "BYTES"), triton.InferInput("candidates", [len(task.texts)], "BYTES")]
    inputs[0].set_data_from_numpy(np.array([task.question], dtype=object))
    inputs[1].set_data_from_numpy(np.array(task.texts, dtype=object))
    client = triton.InferenceServerClient(task.url.removeprefix("http://"))
    answer = client.infer(task.model, inputs)
    client.close()
    assert answer.as_numpy("order").tolist() == task.order


def test_what_describes_a_model(task: Task) -> None:
    """Metadata and configuration name the same tensors, and probes say that it is ready."""
    client = triton.InferenceServerClient(task.url.removeprefix("http://"))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(task.model)
    metadata, config = client.get_model_metadata(task.model), client.get_model_config(task.model)
    assert [each["name"] for each in config["input"]] == [each["name"] for each in metadata["inputs"]]
    client.close()


def test_an_unknown_model_or_path_is_its_own_exception(task: Task) -> None:
    """Its message is the service's."""
    client = triton.InferenceServerClient(task.url.removeprefix("http://"))
    with pytest.raises(InferenceServerException, match="there is no model"):
        client.get_model_config("another")
    with pytest.raises(InferenceServerException, match="there is no such path"):
        client.get_model_repository_index()
    client.close()

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, ranker_config, slow_loader
from tests.service.observe import logged_fields
from tritonclient.utils import serialize_byte_tensor

from cerberank_service.dialects.open_inference import OUTPUTS, Tensor, read_tensors
from cerberank_service.errors import ServiceError

TEXTS = ["it is old", "330 metres", "made of iron", "in paris"]
INFER = "/v2/models/fake-ranker/infer"


def body(question: str = "how tall?", texts: list[Any] = TEXTS, **fields: object) -> dict[str, Any]:
    return {
        "inputs": [
            {"name": "question", "shape": [1], "datatype": "BYTES", "data": [question]},
            {"name": "candidates", "shape": [len(texts)], "datatype": "BYTES", "data": texts},
        ],
        **fields,
    }


def outputs(answer: dict[str, Any]) -> dict[str, list[Any]]:
    return {output["name"]: output["data"] for output in answer["outputs"]}


def test_the_outputs_are_the_native_answer_by_candidate(serve: Serve) -> None:
    """Stages and order are its own, scores fall along the order."""
    client = serve(FakeBackend(ranker_config(schedule=(0.4, 0.4))))
    native = client.post("/v1/rank", json={"question": "how tall?", "candidates": TEXTS}).json()["results"]
    answer = client.post(INFER, json=body(id="mine")).raise_for_status().json()
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("fake-ranker", "7", "mine")
    found = outputs(answer)
    assert found["order"] == [result["index"] for result in native]
    assert [found["stages"][index] for index in found["order"]] == [result["stage"] for result in native]
    along = [found["scores"][index] for index in found["order"]]
    assert along == sorted(along, reverse=True)
    assert along[0] == native[0]["score"]


def test_only_the_wanted_outputs_are_given(client: TestClient) -> None:
    """The outputs have the requested order, and name, shape and type of the metadata."""
    wanted = [{"name": "order"}, {"name": "scores", "parameters": {"binary_data": True}}]
    answer = client.post(INFER, json=body(outputs=wanted)).json()
    described = {output["name"]: output for output in client.get("/v2/models/fake-ranker").json()["outputs"]}
    assert [output["name"] for output in answer["outputs"]] == ["order", "scores"]
    for output in answer["outputs"]:
        assert output["datatype"] == described[output["name"]]["datatype"]
        assert output["shape"] == [4]


def test_parameters_reach_the_call(client: TestClient) -> None:
    """A drop ratio drops, and a timeout of a microsecond is a passed deadline."""
    dropped = outputs(client.post(INFER, json=body(parameters={"drop_ratio": 0.5})).json())
    assert sorted(dropped["stages"]) != [2, 2, 2, 2]
    late = client.post(INFER, json=body(parameters={"timeout": 1})).json()
    assert late["parameters"] == {"complete": False}


def test_what_other_servers_clients_send_has_no_effect_and_is_logged(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    """MLServer's content types, Triton's priorities and sequences; the body's unknown fields are named in the log."""
    sent = body(model_name="fake-ranker", sequence_id=1, parameters={"priority": 1, "content_type": "str"})
    for tensor in sent["inputs"]:
        tensor |= {"parameters": {"content_type": "str"}, "extra": 1}
    sent["outputs"] = [{"name": name, "parameters": {"binary_data": False}, "extra": 1} for name in OUTPUTS]
    answer = client.post(INFER, json=sent).raise_for_status().json()
    assert answer["outputs"] == client.post(INFER, json=body()).json()["outputs"]
    assert logged_fields(caplog) == ["model_name", "sequence_id"]


def test_a_timeout_beyond_64_bits_is_refused(client: TestClient) -> None:
    """Triton's type; a number of hundreds of digits is not a float and was an internal error."""
    assert client.post(INFER, json=body(parameters={"timeout": 2**63 - 1})).status_code == 200
    for timeout in (2**63, 10**400):
        assert client.post(INFER, json=body(parameters={"timeout": timeout})).status_code == 422


def test_metadata_and_probes(client: TestClient) -> None:
    """The fields that the protocol requires, with and without a version in the path."""
    assert set(client.get("/v2").json()) == {"name", "version", "extensions"}
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    for path in ("/v2/models/fake-ranker", "/v2/models/fake-ranker/versions/7"):
        metadata = client.get(path).raise_for_status().json()
        assert (metadata["name"], metadata["versions"]) == ("fake-ranker", ["7"])
        assert {tensor["name"] for tensor in metadata["inputs"]} == {"question", "candidates"}
        assert client.get(f"{path}/ready").json() == {"name": "fake-ranker", "ready": True}
        assert client.post(f"{path}/infer", json=body()).status_code == 200


@pytest.mark.parametrize("path", ["/v2/models/other", "/v2/models/fake-ranker/versions/8"])
def test_what_is_not_served_is_not_found(client: TestClient, path: str) -> None:
    """Each of the model's routes answers 404 in the protocol's error format."""
    answers = [client.get(path), client.get(f"{path}/ready"), client.post(f"{path}/infer", json=body())]
    for response in answers:
        assert response.status_code == 404
        assert set(response.json()) == {"error"}


def test_a_wrong_length_of_the_json_is_a_bad_request(client: TestClient) -> None:
    """Triton's header is believed as far as it makes sense."""
    for length in ("0", "5", "99999999"):
        response = client.post(INFER, json=body(), headers={"Inference-Header-Content-Length": length})
        assert response.status_code == (200 if length == "99999999" else 400)


def test_while_the_model_loads_it_is_not_ready(open_app: Serve, tmp_path: Path) -> None:
    """503 from the probes and from the model; the process is alive."""
    with slow_loader(tmp_path) as slowly:
        client = open_app(slowly)
        for path in ("/v2/health/ready", "/v2/models/fake-ranker", "/v2/models/fake-ranker/ready"):
            response = client.get(path)
            assert (response.status_code, set(response.json())) == (503, {"error"})
            assert "Retry-After" in response.headers
        assert client.post(INFER, json=body()).json()["error"]
        assert client.get("/v2/health/live").status_code == 200


def test_triton_s_client_gets_a_configuration_and_texts_as_errors(client: TestClient) -> None:
    """`get_model_config` finds the inputs and outputs; `error` is a text on paths that are not there, too."""
    metadata = client.get("/v2/models/fake-ranker").json()
    config = client.get("/v2/models/fake-ranker/versions/7/config").raise_for_status().json()
    assert [each["name"] for each in config["input"]] == [each["name"] for each in metadata["inputs"]]
    assert [each["dims"] for each in config["output"]] == [each["shape"] for each in metadata["outputs"]]
    assert client.get("/v2/models/fake-ranker/config").json() == config
    for path in ("/v2/models/other/config", "/v2/models/fake-ranker/stats", "/v2/repository/index"):
        refused = client.get(path)
        assert refused.status_code == 404
        assert isinstance(refused.json()["error"], str)


texts = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=8)


def packed(values: list[str]) -> bytes:
    """The binary form of Triton's own client."""
    return serialize_byte_tensor(np.asarray([value.encode() for value in values], dtype=object)).item()


def binary(name: str, values: list[str]) -> Tensor:
    return Tensor.model_validate(
        {
            "name": name,
            "shape": [len(values)],
            "datatype": "BYTES",
            "parameters": {"binary_data_size": len(packed(values))},
        }
    )


@given(texts, texts)
def test_what_triton_s_client_packs_is_read(question: list[str], candidates: list[str]) -> None:
    """Any text, two tensors one behind the other."""
    tensors = [binary("question", question), binary("candidates", candidates)]
    read = dict(read_tensors(tensors, packed(question) + packed(candidates), 8))
    assert read == {"question": question, "candidates": candidates}


@given(texts)
def test_nested_and_flat_data_are_the_same(values: list[str]) -> None:
    """Row-major, as the protocol has it."""
    common = {"name": "candidates", "datatype": "BYTES"}
    flat = Tensor.model_validate(common | {"shape": [len(values)], "data": values})
    nested = Tensor.model_validate(common | {"shape": [len(values), 1], "data": [[value] for value in values]})
    assert dict(read_tensors([flat], b"", 8)) == dict(read_tensors([nested], b"", 8)) == {"candidates": values}


@pytest.mark.parametrize(
    ("change", "behind", "said"),
    [
        ({"data": ["a"]}, b"", "shape"),
        ({"data": ["a", 3]}, b"", "strings only"),
        ({}, b"", "one of them"),
        ({"data": ["a", "b"], "parameters": {"binary_data_size": 3}}, b"abc", "one of them"),
        ({"parameters": {"binary_data_size": 3}}, b"abc", "cut off"),
        ({"parameters": {"binary_data_size": 8}}, b"\x09\x00\x00\x00abcd", "cut off"),
        ({"parameters": {"binary_data_size": 10}}, b"\x01\x00\x00\x00a\x01\x00\x00\x00\xff", "UTF-8"),
        ({"data": ["a", "b"]}, b"more", "no input"),
        ({"shape": [0], "parameters": {"binary_data_size": 0}}, b"", "none"),
        ({"shape": [3, 3], "parameters": {"binary_data_size": 36}}, bytes(36), "9 are more than the limit of 8"),
        ({"shape": [2**63 - 1] * 8, "data": ["a"]}, b"", "more than the limit of 8"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object], behind: bytes, said: str) -> None:
    """Saying why; nothing is guessed."""
    tensor = Tensor.model_validate({"name": "candidates", "shape": [2], "datatype": "BYTES"} | change)
    with pytest.raises(ServiceError, match=said):
        list(read_tensors([tensor], behind, 8))


def test_no_more_texts_are_read_than_the_shape_states() -> None:
    """A body of empty texts is refused by the first that is too many: the bytes behind it are not even looked at."""
    behind = bytes(4 * 3) + b"cut off"
    tensor = Tensor.model_validate(
        {"name": "candidates", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(behind)}}
    )
    with pytest.raises(ServiceError, match="does not fit"):
        list(read_tensors([tensor], behind, 8))

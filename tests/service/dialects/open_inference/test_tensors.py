from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import serialize_byte_tensor

from cerberank_service.dialects.open_inference.tensors import Tensor, read_tensors
from cerberank_service.errors import ServiceError

texts = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=8)


def packed(values: list[str]) -> bytes:
    """The binary form of Triton's own client."""
    serialised: bytes = serialize_byte_tensor(np.asarray([value.encode() for value in values], dtype=object)).item()
    return serialised


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

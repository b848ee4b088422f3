"""Tensors in other files are found wherever a graph may hold them; what is not a graph is refused."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from tests.models.checkpoint.test_folder import rewrite

from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.external_data import (
    DATA_LOCATION,
    DEEPEST,
    EXTERNAL_DATA,
    WITHIN,
    GraphError,
    external_files,
)
from cerberank_models.checkpoint.folder import CheckpointError, read_checkpoint


def tensor(place: str | None = None) -> TensorProto:
    """A small tensor; with `place` it lies in that file."""
    made = helper.make_tensor("weights", TensorProto.FLOAT, [2], [1.0, 2.0])
    if place is not None:
        made.ClearField("float_data")
        made.data_location = TensorProto.EXTERNAL
        made.external_data.add(key="location", value=place)
    return made


def model(inner: TensorProto, where: str) -> bytes:
    """A model with the tensor at a place where the format allows one."""
    graph = helper.make_graph([], "g", [], [])
    sparse = helper.make_sparse_tensor(inner, tensor(), [4])
    made = helper.make_model(graph)
    match where:
        case "initializer":
            made.graph.initializer.append(inner)
        case "sparse":
            made.graph.sparse_initializer.append(sparse)
        case "constant":
            made.graph.node.append(helper.make_node("Constant", [], ["c"], value=inner))
        case "tensors":
            made.graph.node.append(helper.make_node("Any", [], ["c"], many=[inner, tensor()]))
        case "branch":
            branch = helper.make_graph([], "b", [], [], initializer=[inner])
            made.graph.node.append(helper.make_node("If", ["x"], ["y"], then_branch=branch))
        case "function":
            node = helper.make_node("Constant", [], ["c"], value=inner)
            made.functions.append(helper.make_function("d", "f", [], ["c"], [node], []))
        case "training":
            made.training_info.add().algorithm.initializer.append(inner)
    return made.SerializeToString()


PLACES = ["initializer", "sparse", "constant", "tensors", "branch", "function", "training"]


@pytest.mark.parametrize("where", PLACES)
def test_external_data_is_found_wherever_it_is(where: str) -> None:
    """And nothing else is taken for it."""
    assert external_files(model(tensor("weights.bin"), where)) == {"weights.bin"}
    assert not external_files(model(tensor(), where))


@pytest.mark.parametrize("field", ["external_data", "data_location"])
def test_one_of_both_fields_is_enough(field: str) -> None:
    """Runtimes differ in which of them they look at."""
    inner = tensor("/etc/passwd")
    inner.ClearField(field)
    assert external_files(model(inner, "initializer")) == ({"/etc/passwd"} if field == "data_location" else {""})


@pytest.mark.parametrize(
    "entry",
    [b"\x0a\x08location", b"\x12\x01x", b"\x0a\x08basepath\x12\x01/", b"\x0a\x06offset\x0a\x01?", b""],
)
def test_an_entry_with_another_meaning_names_no_file(entry: bytes) -> None:
    """A place without a value, no key, a key of another version, two keys: none of them is taken for the own file."""
    content = _field(7, _field(5, _field(EXTERNAL_DATA, entry)))
    assert external_files(content) == {""}


def test_every_value_of_a_place_counts() -> None:
    """A parser takes one of them, and parsers may differ in which."""
    entry = b"\x0a\x08location" + _field(2, b"stage-0.onnx.data") + _field(2, b"/etc/passwd")
    assert external_files(_field(7, _field(5, _field(EXTERNAL_DATA, entry)))) == {"stage-0.onnx.data", "/etc/passwd"}


def test_exported_graphs_hold_their_tensors() -> None:
    """Every graph of the bundled checkpoint; onnx agrees that they are whole."""
    graphs = sorted((BUNDLED / "onnx").rglob("*.onnx"))
    assert graphs
    for graph in graphs:
        assert not external_files(graph.read_bytes())
        assert onnx.load_model_from_string(graph.read_bytes()).graph.initializer


@given(st.binary(max_size=200))
def test_any_bytes_are_a_graph_or_an_error(content: bytes) -> None:
    """No other exception and no endless loop."""
    try:
        external_files(content)
    except GraphError:
        return


@pytest.mark.parametrize("content", [b"\x3a\x05ab", b"\x3b", b"\xff" * 11, b"\x39abc"])
def test_what_is_cut_off_is_no_graph(content: bytes) -> None:
    """A message shorter than it says, a group, an endless number, half a number."""
    with pytest.raises(GraphError):
        external_files(content)


def _ways() -> list[tuple[int, ...]]:
    """For every kind of message, a chain of fields that leads to each of its own fields."""
    chains: dict[str, tuple[int, ...]] = {"model": ()}
    while len(chains) < len(WITHIN):
        for kind, way in list(chains.items()):
            for number, inner in WITHIN[kind].items():
                chains.setdefault(inner, (*way, number))
    return [(*chains[kind], number) for kind, fields in WITHIN.items() for number in fields] + [
        (*chains["tensor"], number) for number in (EXTERNAL_DATA, DATA_LOCATION)
    ]


@pytest.mark.parametrize("way", _ways(), ids=str)
@pytest.mark.parametrize("beyond", [1 << 32, 1 << 34, 1 << 63])
def test_a_tag_of_more_than_32_bits_is_refused(way: tuple[int, ...], beyond: int) -> None:
    """Wherever it is: protobuf's C++ parser cuts it to 32 bits, and would find the tensors that it hides from here."""
    content = _varint(way[-1] << 3 | 2 | beyond) + _varint(0)
    for number in reversed(way[:-1]):
        content = _field(number, content)
    with pytest.raises(GraphError, match="out of range"):
        external_files(content)


def test_field_zero_is_refused() -> None:
    """A parser may take it for the end of the message."""
    with pytest.raises(GraphError, match="out of range"):
        external_files(b"\x02\x00")


def test_a_graph_that_is_nested_without_end_is_refused() -> None:
    """Before Python's own limit on recursion."""
    graph = b""
    for _ in range(DEEPEST):
        graph = _field(1, _field(5, _field(6, graph)))  # a node's attribute's graph
    with pytest.raises(GraphError, match="nested"):
        external_files(_field(7, graph))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.parametrize("place", ["/etc/passwd", "../../../secret", "weights.bin"])
def test_a_checkpoint_whose_graph_reads_other_files_is_refused(tiny_copy: Path, place: str) -> None:
    """Whatever the runtime would do; its hash is right."""
    graph = onnx.load(tiny_copy / "onnx" / "int8" / "stage-0.onnx")
    graph.graph.initializer.append(tensor(place))
    rewrite(tiny_copy, "onnx/int8/stage-0.onnx", graph.SerializeToString())
    with pytest.raises(CheckpointError, match="external data"):
        read_checkpoint(tiny_copy)


@pytest.mark.parametrize("content", [b"", b"\x3b"])
def test_a_checkpoint_with_something_else_for_a_graph_is_refused(tiny_copy: Path, content: bytes) -> None:
    """An empty file too."""
    rewrite(tiny_copy, "onnx/int8/stage-0.onnx", content)
    with pytest.raises(CheckpointError, match="not an ONNX graph"):
        read_checkpoint(tiny_copy)

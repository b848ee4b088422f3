"""Public ColBERTs score as sentence-transformers scores them, and what is read otherwise is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Normalize
from tests.late_interaction import FIXED, TEXTS, expected, multi_vector

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.encoding import concat_pairs
from cerberank_models.first_stage.attach import attach
from cerberank_models.first_stage.bi_encoders import BiEncoder, read_bi_encoder
from cerberank_models.first_stage.opening import open_vector_backend
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.first_stage.torch_encoder import TorchEncoder
from cerberank_models.first_stage.vector_backend import token_roles
from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.varlen import VarlenAttention
from cerberank_models.text_encoding import TextEncoder

QUESTION = "how tall is the tower?"
LONG = "what do [MASK] bees make, and how tall is the river city of paris - the tower, bees, honey?"
HALF = 2.0**-11
"""The relative error of a number that is rounded to float16."""
EXPANSIONS: list[dict[str, Any] | None] = [
    None,
    FIXED,
    FIXED | {"attend": True},
    {"strategy": "min", "length": 16},
    FIXED | {"token": "[UNK]"},
]


def check(bi: BiEncoder, model: MultiVectorEncoder, question: str, *, backend: Any = None) -> None:
    """The first stage's vectors are as many as the library's, and their MaxSim is its within their rounding."""
    config = bi.network.config
    texts = TextEncoder(bi.tokenizer, config)
    vectors = (backend or TorchEncoder(bi.network)).encode(
        concat_pairs([texts.questions([question]), texts.candidates(TEXTS)])
    )
    counts, similarity = expected(model, question)
    assert [len(each) // config.projection for each in vectors] == counts
    cosines = 2 * FirstStageScorer(config, bi.weights)(vectors[0], vectors[1:]) - 1
    # Two unit vectors of P numbers, each rounded to a share of HALF: the product is off by at most twice that.
    assert np.abs(cosines - similarity / counts[0]).max() <= 2 * HALF


@pytest.mark.parametrize("question", [QUESTION, LONG])
@pytest.mark.parametrize("expansion", EXPANSIONS, ids=["none", "fixed", "attended", "min", "other-token"])
def test_scores_are_maxsim_of_the_library(expansion: dict[str, Any] | None, question: str, tmp_path: Path) -> None:
    """Marks, filled questions, punctuation left out of documents; the long question is cut where it has a width."""
    model = multi_vector(tmp_path / "model", expansion=expansion)
    check(read_bi_encoder(str(tmp_path / "model"), candidate_length=40), model, question)


def test_maxsim_in_fp32_is_the_library_s(tmp_path: Path) -> None:
    """Before vectors are rounded to float16, the sum over a question's tokens is the library's within 1e-4."""
    model = multi_vector(tmp_path / "model", expansion=FIXED)
    bi = read_bi_encoder(str(tmp_path / "model"), candidate_length=40)
    texts = TextEncoder(bi.tokenizer, bi.network.config)
    encoded = concat_pairs([texts.questions([QUESTION]), texts.candidates(TEXTS)])
    roles = token_roles(encoded, bi.network.config.encoding.colbert)
    assert roles.attended is not None
    packed = PackedLayout.of(torch.from_numpy(encoded.offsets.astype(np.int32)))
    layout = replace(packed, keys=packed.pad(torch.from_numpy(roles.attended)))
    ids = torch.from_numpy(encoded.token_ids)
    with torch.inference_mode():
        _, vectors = bi.network.read(ids, torch.zeros_like(ids), layout)
    question_vectors, *document_vectors = (
        vectors[start:stop][torch.from_numpy(roles.compared[start:stop])]
        for start, stop in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)
    )
    got = [float((question_vectors @ each.T).amax(dim=1).sum()) for each in document_vectors]
    counts, similarity = expected(model, QUESTION)
    assert [len(each) for each in (question_vectors, *document_vectors)] == counts
    np.testing.assert_allclose(got, similarity, atol=1e-4)


def test_modernberts_are_read(tmp_path: Path) -> None:
    """Most ColBERTs of 2025 and later are ModernBERTs, whose layers attend to a window of tokens."""
    model = multi_vector(tmp_path / "model", family="modernbert", expansion=FIXED)
    check(read_bi_encoder(str(tmp_path / "model"), candidate_length=40), model, QUESTION)


@pytest.fixture(scope="module")
def whole(plain: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> tuple[MultiVectorEncoder, Checkpoint]:
    """A model of the library, and a checkpoint with it as its first stage, in all forms."""
    folder = tmp_path_factory.mktemp("colbert")
    model = multi_vector(folder / "model", expansion=FIXED)
    bi = read_bi_encoder(str(folder / "model"), candidate_length=40)
    return model, attach(plain, bi, folder / "out", source="a ColBERT")


def test_the_graph_computes_the_same(whole: tuple[MultiVectorEncoder, Checkpoint], tmp_path: Path) -> None:
    """ONNX Runtime's attention with tokens that others do not attend to, between those that they do."""
    model, made = whole
    model.save_pretrained(str(tmp_path / "model"))
    bi = read_bi_encoder(str(tmp_path / "model"), candidate_length=40)
    graph = open_vector_backend(made, kind="onnx", precision="fp32")
    for question in (QUESTION, LONG):
        check(bi, model, question, backend=graph)


def test_a_kernel_without_such_masks_is_left_out(tmp_path: Path) -> None:
    """The GPU's kernel knows only where texts begin: questions that are filled do not go through it."""
    model = multi_vector(tmp_path / "model", expansion=FIXED)
    bi = read_bi_encoder(str(tmp_path / "model"), candidate_length=40)

    def kernel(*_: Any, **__: Any) -> Any:
        raise AssertionError("the kernel was called")

    never: VarlenAttention = kernel
    check(bi, model, QUESTION, backend=TorchEncoder(bi.network, kernel=never))


def test_pylates_format_is_read(tmp_path: Path) -> None:
    """Two modules, and everything else in one file; the skip list is punctuation where it says nothing."""
    multi_vector(tmp_path / "model", expansion=FIXED)
    modules = json.loads((tmp_path / "model" / "modules.json").read_text())[:2]
    modules[1]["type"] = "pylate.models.Dense.Dense"
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules))
    settings = {
        "model_type": "ColBERT",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 16,
        "document_length": 40,
        "attend_to_expansion_tokens": False,
        "do_query_expansion": True,
    }
    (tmp_path / "model" / "config_sentence_transformers.json").write_text(json.dumps(settings))
    (tmp_path / "model" / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 40}))
    model = MultiVectorEncoder(str(tmp_path / "model"))
    for question in (QUESTION, LONG):
        check(read_bi_encoder(str(tmp_path / "model"), candidate_length=40), model, question)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"prompts": ("", "")}, "marks its texts by '', which is 0 tokens"),
        ({"prompts": ("[Q] ", "[Q] ")}, "marks questions and documents alike"),
        ({"prompts": ("[Q] ", "the tower: ")}, "'the tower: ', which is"),
        ({"expansion": FIXED | {"token": "[SEP]"}}, "fills questions with its separator"),
        ({"bias": True}, "projects token vectors by more than a matrix"),
        ({"activation_function": torch.nn.Tanh()}, "projects token vectors by more than a matrix"),
        ({"more": (Normalize(module_input_name="token_embeddings"),)}, "several projections"),
    ],
)
def test_other_models_are_refused(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    """Their scores would be others."""
    multi_vector(tmp_path / "model", **changes)
    with pytest.raises(UnsupportedModelError, match=problem):
        read_bi_encoder(str(tmp_path / "model"), candidate_length=40)

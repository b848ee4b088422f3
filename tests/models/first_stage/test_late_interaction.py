"""Public ColBERTs score as sentence-transformers scores them, and what is read otherwise is refused by name."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from tests.tiny import bert_tokenizer, hugging_face_config

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.encoding import concat_pairs
from cerberank_models.first_stage.attach import attach, export_encoder
from cerberank_models.first_stage.open import check_first_stage, open_first_stage
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.first_stage.sources import BiEncoder, read_bi_encoder
from cerberank_models.first_stage.torch_encoder import TorchEncoder
from cerberank_models.network.varlen import VarlenAttention
from cerberank_models.text_encoding import TextEncoder

QUESTION = "how tall is the tower?"
LONG = "what do [MASK] bees make, and how tall is the river city of paris - the tower, bees, honey?"
TEXTS = ["a, b. c?", "b", "what do bees make honey from?", "the river-city of paris, the tower."]
HALF = 2.0**-11
"""The relative error of a number that is rounded to float16."""
FIXED = {"strategy": "fixed", "length": 16}
EXPANSIONS: list[dict[str, Any] | None] = [
    None,
    FIXED,
    FIXED | {"attend": True},
    {"strategy": "min", "length": 16},
    FIXED | {"token": "[UNK]"},
]


def encoder(folder: Path, family: str) -> Path:
    torch.manual_seed(0)
    transformers.AutoModel.from_config(hugging_face_config(family, num_hidden_layers=2)).save_pretrained(folder)
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * (family == "bert")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=bert_tokenizer(), mask_token="[MASK]", model_input_names=names, **special
    ).save_pretrained(folder)
    return folder


def multi_vector(
    folder: Path,
    *,
    family: str = "bert",
    expansion: dict[str, Any] | None = None,
    prompts: tuple[str, str] = ("[Q] ", "[D] "),
    more: tuple[torch.nn.Module, ...] = (),
    **dense: Any,
) -> MultiVectorEncoder:
    """A tiny model of the library, saved in `folder`."""
    base = encoder(folder.with_name(f"{folder.name}-base"), family)
    body = Transformer(str(base), query_expansion=expansion, query_length=None if expansion else 40)
    body.tokenizer.add_tokens(["[Q] ", "[D] "])
    body.auto_model.resize_token_embeddings(len(body.tokenizer))
    plain = {"bias": False, "activation_function": torch.nn.Identity(), "module_input_name": "token_embeddings"}
    words = [mark for mark in string.punctuation if body.tokenizer.convert_tokens_to_ids(mark) != 1]
    modules = [
        body,
        Dense(32, 8, **plain | dense),
        MultiVectorMask(skiplist_words=words),
        Normalize(module_input_name="token_embeddings"),
        *more,
    ]
    model = MultiVectorEncoder(modules=modules, prompts=dict(zip(("query", "document"), prompts, strict=True)))
    model.save_pretrained(str(folder))
    return model


def expected(model: MultiVectorEncoder, question: str) -> tuple[list[int], np.ndarray]:
    """The number of vectors of each text, the question first, and MaxSim of each candidate."""
    asked, said = model.encode_query([question]), model.encode_document(TEXTS)
    scores = model.similarity(asked, said)[0]
    return [len(each) for each in (*asked, *said)], scores.float().cpu().numpy()


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


def test_modernberts_are_read(tmp_path: Path) -> None:
    """Most ColBERTs of 2025 and later are ModernBERTs, whose layers attend to a window of tokens."""
    model = multi_vector(tmp_path / "model", family="modernbert", expansion=FIXED)
    check(read_bi_encoder(str(tmp_path / "model"), candidate_length=40), model, QUESTION)


def test_the_graph_computes_the_same(tmp_path: Path) -> None:
    """ONNX Runtime's attention with tokens that others do not attend to, between those that they do."""
    model = multi_vector(tmp_path / "model", expansion=FIXED)
    bi = read_bi_encoder(str(tmp_path / "model"), candidate_length=40)
    graph = export_encoder("fp32", bi.network, tmp_path / "encoder.onnx", calibration=(), margin=1.0)
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


def test_a_checkpoint_with_one_passes_its_golden_questions(plain: Checkpoint, tmp_path: Path) -> None:
    """In every form that the checkpoint has, and with weights."""
    multi_vector(tmp_path / "model", expansion=FIXED)
    bi = read_bi_encoder(str(tmp_path / "model"), candidate_length=40)
    made = attach(plain, bi, tmp_path / "out", source="a ColBERT")
    for kind, precision in [("torch", "fp32"), *(("onnx", each) for each in made.precisions)]:
        check_first_stage(open_first_stage(made, kind=kind, precision=precision), made, precision)


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

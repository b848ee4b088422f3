from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from tests.opaque import opaque_config as own_config
from tests.opaque import write_opaque
from tests.tiny import bert_tokenizer, hugging_face_config, roberta_tokenizer
from tokenizers import processors

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError
from cerberank_models.config import OpaqueRankerError, RankerConfig
from cerberank_models.convert.checkpoint import ParityError
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.opaque import opaque_config, pair_template, why_opaque
from cerberank_models.convert.read_back import read_back
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.transformer import PAIR_TEMPLATES

ENCODING = TeacherInput(max_length=48).encoding()


def test_the_template_is_the_tokenizers_own() -> None:
    """One separator between the texts, or two; the special tokens as text."""
    for family, tokenizer in (("bert", bert_tokenizer()), ("roberta", roberta_tokenizer())):
        template = pair_template(transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer))
        assert template == PAIR_TEMPLATES[family]  # type: ignore[index]


@pytest.mark.parametrize("pair", ["$A [SEP] $B [SEP] [CLS]", "[CLS] $B [SEP] $A [SEP]", "[CLS] $A $B [SEP]", "$A $B"])
def test_another_layout_is_refused(pair: str) -> None:
    """The error shows a pair as the tokenizer makes it."""
    tokenizer = bert_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A", pair=pair, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    with pytest.raises(UnsupportedModelError, match=r"its tokenizer makes pairs such as .*how tall is"):
        pair_template(transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer))


def test_a_model_without_a_vocabulary_is_refused() -> None:
    """Such as one that reads pictures."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bert_tokenizer())
    with pytest.raises(UnsupportedModelError, match="vit states no vocab_size"):
        opaque_config(transformers.ViTConfig(), tokenizer, name="x", encoding=ENCODING)


def test_only_what_has_no_layers_here_is_opaque() -> None:
    """A known family is not, unless it computes something else; the reason is told."""
    assert why_opaque(hugging_face_config("bert")) is None
    assert "'relu'" in str(why_opaque(hugging_face_config("bert", hidden_act="relu")))
    assert "'deberta-v2'" in str(why_opaque(transformers.DebertaV2Config()))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The checkpoint of a tiny graph, in fp32 and int8."""
    return write_opaque(tmp_path_factory.mktemp("opaque") / "out")


def test_padding_must_not_count(tmp_path: Path) -> None:
    """A padded batch must give the scores of the pairs alone."""
    with pytest.raises(ParityError, match="fp32 scores differ"):
        write_opaque(tmp_path / "out", padding_counts=True)


def test_what_needs_layers_says_what_to_do(checkpoint: Checkpoint) -> None:
    """Torch, reading weights back, a network of its shape."""
    with pytest.raises(CheckpointError, match="serve it with the onnx backend"):
        open_backend(checkpoint, kind="torch", precision="fp32")
    for needs_layers in (lambda: RankingNetwork(checkpoint.config), lambda: read_back(checkpoint, "fp32")):
        with pytest.raises(OpaqueRankerError, match=r"opaque is an opaque graph \(sum\), whose layers are not known"):
            needs_layers()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": {"body_layers": 0, "heads": 1, "head_layers": 1}, "exits": []}, "has no heads, and one exit"),
        ({"encoding": TeacherInput(max_length=64).encoding()}, "needs encoding.template"),
        (
            {"encoding": {"max_length": 65, "question_length": 9, "template": {"first": "a", "separator": "b"}}},
            "65 exceeds",
        ),
        ({"encoding": {"template": {"first": "a", "separator": "b", "betwen": 2}}}, "betwen"),
        ({"transformer": {"family": "opaque", "model_type": "x", "vocab_size": 9, "max_positions": 64, "x": 1}}, "x"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    """Like any other config.json, strictly."""
    with pytest.raises(ValueError, match=message):
        RankerConfig.model_validate(own_config().model_dump() | changes)

from __future__ import annotations

from functools import partial

import pytest
import transformers
from tests.opaque import shipped_graph
from tests.tiny import bert_tokenizer, hugging_face_config, roberta_tokenizer
from tokenizers import processors

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError, read_checkpoint
from cerberank_models.config import ArchitectureConfig, ExitConfig, OpaqueRankerError, RankerConfig
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.opaque import export_opaque, opaque_config, pair_template, why_opaque
from cerberank_models.convert.opaque_graph import adopt_graph
from cerberank_models.convert.read_back import read_back
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.transformer import PAIR_TEMPLATES, OpaqueTransformer, PairTemplate

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


def test_the_configuration_is_what_both_say() -> None:
    """Depth and vocabulary from transformers' configuration, token types and template from the tokenizer."""
    source = hugging_face_config("electra", num_labels=1)
    for names, types in ((["input_ids", "attention_mask"], 1), (["input_ids", "token_type_ids"], 2)):
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bert_tokenizer(), model_input_names=names)
        config = opaque_config(source, tokenizer, name="x", encoding=ENCODING)
        assert config.transformer.type_vocab_size == types
        assert (config.transformer.layers, config.transformer.vocab_size) == (4, 300)
        assert (config.architecture.classifier_logits, config.encoding.max_length) == (1, 48)


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


def shipped_config() -> RankerConfig:
    """The configuration of `shipped_graph`."""
    encoding = TeacherInput(max_length=64).encoding()
    return RankerConfig(
        name="opaque",
        transformer=OpaqueTransformer(
            family="opaque", model_type="sum", vocab_size=300, max_positions=64, type_vocab_size=2
        ),
        architecture=ArchitectureConfig(body_layers=1, heads=0, head_layers=0),
        exits=(ExitConfig(after=1, pooling="first"),),
        encoding=encoding.model_copy(update={"template": PairTemplate("[CLS]", "[SEP]")}),
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The checkpoint of a tiny graph, in fp32 and int8."""
    folder = tmp_path_factory.mktemp("opaque")
    shipped_graph(folder / "graph.onnx")
    write = partial(adopt_graph, folder / "graph.onnx", labels=1, pad=0)
    export_opaque(write, shipped_config(), bert_tokenizer(), folder / "out", card="# x\n", version="1", source="tests")
    return read_checkpoint(folder / "out")


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
        RankerConfig.model_validate(shipped_config().model_dump() | changes)

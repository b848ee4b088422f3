"""Students before their first step: the shapes of the paper, bases that fit, bases that do not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
import transformers
from tests.bounds import PRODUCTS, SPREAD, rounding
from tests.modular import mean_head, save_modular
from tests.tiny import ENCODING, cross_encoder, hugging_face_config, padded, random_pairs, save_cross_encoder
from torch import Tensor

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.config import NewTypes, RankerConfig, TunedSchedule
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.from_hugging_face import ranker_config
from cerberank_models.convert.modules import read_modular_head
from cerberank_models.convert.source import find_source
from cerberank_models.convert.source_network import read_config, read_network
from cerberank_models.encoding import Candidate, EncodedPairs
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_training.commands.presets import student_settings
from cerberank_training.learning.settings import StudentObjective, StudentShape
from cerberank_training.learning.student_network import Student, build_student, copied_heads, fitted
from cerberank_training.runs.base import open_base

READS = {"max_length": ENCODING.max_length, "question_length": ENCODING.question_length}


def shape(*, body_layers: int = 3, heads: int, exits: tuple[int, ...] = ()) -> StudentShape:
    return StudentShape(name="s", body_layers=body_layers, heads=heads, exits=exits, **READS)


def fit(base: Path, shape: StudentShape) -> StudentShape:
    return fitted(open_base(str(base)), shape)


def build(shape: StudentShape, base: Path, *, seed: int = 1) -> Student:
    opened = open_base(str(base))
    return build_student(fitted(opened, shape), opened, seed=seed, dropout=0.0)


def classified(family: str, **changes: object) -> tuple[Tensor, EncodedPairs]:
    """Pairs and what Hugging Face's classifier of `save_cross_encoder` gives them: `z1 - z0`, or its one logit."""
    model = cross_encoder(family, **changes)
    kinds = getattr(model.config, "type_vocab_size", 1)
    pairs = random_pairs([12, 30, 7, 21], types=kinds)
    ids, types, mask = padded(pairs, pad=model.config.pad_token_id)
    typed = {"token_type_ids": types} if kinds > 1 else {}
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask, **typed).logits
    return logits[:, -1] - (logits[:, 0] if logits.shape[1] > 1 else 0.0), pairs


def assert_every_head_gives(ranker: RankingNetwork, pairs: EncodedPairs, expected: Tensor, *, layers: int) -> None:
    """Within the rounding of so many layers in another order of additions."""
    arrays = (torch.from_numpy(array) for array in (pairs.token_ids, pairs.type_ids, pairs.offsets))
    with torch.no_grad():
        logits = ranker.eval()(*arrays)
    bound = rounding(PRODUCTS * layers, size=SPREAD)
    assert (logits - expected[:, None]).abs().max() < bound < 0.01 * expected.std()


@pytest.mark.parametrize(
    ("recipe", "millions"),
    [
        ("electra-base-b11-3h1", 124.9),
        ("electra-base-b10-3h2", 139.0),
        ("electra-base-b8-3h4", 167.4),
        ("electra-base-b6-3h6", 195.7),
    ],
)
def test_the_papers_shapes_have_about_the_papers_sizes(recipe: str, millions: float) -> None:
    """CERBERUS table 4 prints 124, 139, 169 and 199 M parameters; ours are counted without allocating them."""
    shape = student_settings(recipe).shape
    base = transformers.ElectraConfig(
        embedding_size=768, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072
    )
    with torch.device("meta"):
        ranker = RankingNetwork(ranker_config(base, name=shape.name, body_layers=shape.body_layers, heads=shape.heads))
    assert sum(parameter.numel() for parameter in ranker.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(
    ("heads", "body_layers", "millions"),
    [(1, 12, 11.7), (3, 12, 12.9), (3, 11, 34.1)],
    ids=["base", "B12 3H0", "B11 3H1"],
)
def test_albert_base_has_its_own_size(heads: int, body_layers: int, millions: float) -> None:
    """CERBERUS table 2 prints 11 M: the shared layer is counted once; heads with a layer have a copy of it each."""
    base = transformers.AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)
    with torch.device("meta"):
        ranker = RankingNetwork(ranker_config(base, name="albert-base", body_layers=body_layers, heads=heads))
    assert sum(parameter.numel() for parameter in ranker.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta"])
def test_every_head_starts_with_the_score_of_the_fine_tuned_base(family: str, tmp_path: Path) -> None:
    """B11 3H1, B10 3H2, B8 3H4 and B6 3H6 of twelve layers: each head's score is the Hugging Face classifier's."""
    base = save_cross_encoder(family, tmp_path, num_hidden_layers=12)
    expected, pairs = classified(family, num_hidden_layers=12)
    for heads_layers in (1, 2, 4, 6):
        student = build(shape(body_layers=12 - heads_layers, heads=3), base)
        assert_every_head_gives(student.ranker, pairs, expected, layers=12)
        assert (
            student.start == f"starts from {base}, a cross-encoder of two logits, whose classifier the heads start from"
        )


def test_a_classifier_of_one_logit_is_copied_too(tmp_path: Path) -> None:
    """A cross-encoder that gives one score, as sentence-transformers' do."""
    base = save_cross_encoder("bert", tmp_path, num_labels=1)
    expected, pairs = classified("bert", num_labels=1)
    student = build(shape(body_layers=2, heads=2), base)
    assert student.ranker.config.architecture.classifier_logits == 1
    assert_every_head_gives(student.ranker, pairs, expected, layers=4)


def test_heads_start_with_the_score_of_a_modular_base(tmp_path: Path) -> None:
    """The modules behind its encoder are copied into every head."""
    base = save_modular("bert", tmp_path, head=mean_head)
    student = build(shape(heads=2), base)
    assert student.start.endswith("a modular cross-encoder of two logits, whose classifier the heads start from")
    network = read_network(source := find_source(str(base)), read_config(source), read_modular_head(source))
    pairs = random_pairs([12, 30, 7, 21])
    ids, types, mask = padded(pairs)
    with torch.no_grad():
        logits = network.eval()(input_ids=ids, attention_mask=mask, token_type_ids=types).logits
    assert_every_head_gives(student.ranker, pairs, logits[:, 1] - logits[:, 0], layers=4)


@pytest.mark.parametrize(("body", "exits"), [(3, (1,)), (3, (3,)), (4, (2,)), (4, ())])
def test_exits_alone_must_read_the_last_layer(body: int, exits: tuple[int, ...], tmp_path: Path) -> None:
    """Without heads the last exit gives the score; the message names the options, before a base is loaded."""
    base, last = save_cross_encoder("bert", tmp_path), exits
    with pytest.raises(UnsupportedModelError, match=r"^--heads 0: .*--body-layers 4 and --exits that end in 4"):
        fit(base, shape(heads=0, body_layers=body, exits=last))
    assert fit(base, shape(heads=0, body_layers=4, exits=(*last, 4))).body_layers == 4


def sized(max_length: int) -> StudentShape:
    return replace(shape(heads=1), max_length=max_length, question_length=8)


def test_a_base_without_layers_here_or_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    """Before its weights are loaded, which these folders do not have; transformers would make an empty vocabulary."""
    transformers.DebertaV2Config(num_hidden_layers=1).save_pretrained(tmp_path / "deberta")
    with pytest.raises(UnsupportedModelError, match=r"'deberta-v2' is not one of .*score --teacher.*one graph"):
        fit(tmp_path / "deberta", sized(48))
    base = save_cross_encoder("bert", tmp_path / "base")
    fit(base, sized(48))
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (base / name).unlink()
    with pytest.raises(UnsupportedModelError, match="has no tokenizer"):
        build(shape(heads=1), base)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_pairs_longer_than_the_bases_positions_are_refused_before_its_weights(family: str, tmp_path: Path) -> None:
    """In one line with option and base, by the configuration alone; RoBERTa's unused first positions do not count."""
    base = save_cross_encoder(family, tmp_path / "base")
    import_model(str(base), tmp_path / "imported", ImportOptions(name="imported", max_length=48, forms=()))
    (base / "model.safetensors").unlink()
    for each in (base, tmp_path / "imported"):
        fit(each, sized(64))
        with pytest.raises(UnsupportedModelError) as error:
            fit(each, sized(65))
        assert str(error.value) == f"--max-length 65: {each} has 64 positions"
        with pytest.raises(UnsupportedModelError, match=r"--body-layers 9: of .* 4 layers are used"):
            fit(each, shape(heads=1, body_layers=9))
        with pytest.raises(UnsupportedModelError, match=r"--layers 5: .* has 4"):
            fit(each, replace(shape(heads=1), layers=5))


def test_a_shape_takes_the_depth_of_its_body_from_the_base(tmp_path: Path) -> None:
    """All layers but the last, all without heads, and those of a checkpoint's body; deeper exits are refused."""
    base = save_cross_encoder("bert", tmp_path / "base")
    student = replace(student_settings("student").shape, **READS)
    assert fit(base, student).body_layers == 3
    assert fit(base, replace(student, layers=2)).body_layers == 1
    assert fit(base, replace(student, heads=0, exits=(4,))).body_layers == 4
    import_model(str(base), tmp_path / "imported", ImportOptions(name="imported", max_length=48, forms=()))
    imported = read_checkpoint(tmp_path / "imported").config.architecture
    assert fit(tmp_path / "imported", student).body_layers == imported.body_layers
    with pytest.raises(UnsupportedModelError, match="--exits 4: the body has 3 layers"):
        fit(base, replace(student, exits=(4,)))


@pytest.mark.parametrize("family", ["electra", "modernbert"])
def test_an_imported_classifier_gives_all_four_shapes(family: str, tmp_path: Path) -> None:
    """From the checkpoint that `import` makes, B11 1H1, every shape has the classifier's score; also a plain body."""
    base = save_cross_encoder(family, tmp_path / "base", num_hidden_layers=12)
    import_model(str(base), tmp_path / "imported", ImportOptions(name="imported", max_length=48, forms=()))
    expected, pairs = classified(family, num_hidden_layers=12)
    for heads_layers in (0, 1, 2, 4, 6):
        wanted = shape(body_layers=12 - heads_layers, heads=3)
        student = build(wanted, tmp_path / "imported")
        assert str(student.ranker.config.architecture) == f"B{12 - heads_layers} 3H{heads_layers}"
        assert_every_head_gives(student.ranker, pairs, expected, layers=12)
    cascade = shape(body_layers=12, heads=0, exits=(12,))
    without_heads = build(cascade, tmp_path / "imported")
    assert without_heads.start.endswith("without heads; the exits start from random weights")
    plain = without_heads.ranker
    last = student.ranker.get_parameter("heads.2.layers.5.up.weight")
    assert torch.equal(plain.get_parameter("body.11.up.weight"), last)


@pytest.mark.parametrize("model", ["BertModel", "BertForPreTraining", "BertForTokenClassification"])
def test_what_is_no_sequence_classifier_gives_fresh_classifiers(model: str, tmp_path: Path) -> None:
    """Poolers and token classifiers have the names of BERT's classifier; no weight of theirs is taken for one."""
    save_cross_encoder("bert", tmp_path)
    torch.manual_seed(0)
    source = getattr(transformers, model)(hugging_face_config("bert"))
    source.save_pretrained(tmp_path)
    wanted = shape(body_layers=3, heads=2)
    first, again = (build(wanted, tmp_path) for _ in range(2))
    assert "an encoder, which has no classifier: the heads' classifiers start from random weights" in first.start
    one, two = first.ranker.state_dict(), again.ranker.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(one["heads.0.layers.0.up.weight"], one["heads.1.layers.0.up.weight"])
    assert not torch.equal(one["heads.0.classifier.dense.weight"], one["heads.1.classifier.dense.weight"])
    if "pooler.dense.weight" in (weights := source.base_model.state_dict()):
        assert not torch.equal(one["heads.0.classifier.dense.weight"], weights["pooler.dense.weight"])


def test_a_classifier_that_does_not_fit_is_not_used(tmp_path: Path) -> None:
    """Three labels, or a classifier of a later layer: fresh ones, and the reason. Missing weights are refused."""
    three = save_cross_encoder("bert", tmp_path / "three", num_labels=3)
    assert "classifies into 3 labels" in build(shape(heads=1), three).start
    base = save_cross_encoder("bert", tmp_path / "base")
    short = build(replace(shape(body_layers=1, heads=1), layers=2), base)
    assert "a classifier that reads a later layer" in short.start
    transformers.BertModel(hugging_face_config("bert")).save_pretrained(tmp_path / "lacking")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(base / name, tmp_path / "lacking" / name)
    with pytest.raises(UnsupportedModelError, match=r"lacks classifier\.bias, classifier\.weight"):
        build(shape(heads=1), tmp_path / "lacking")


def test_an_imported_albert_gives_every_shape(tmp_path: Path) -> None:
    """From the one layer of B4 1H0: heads with copies of it have its score. Of B2 2H2 another body is refused."""
    base = save_cross_encoder("albert", tmp_path / "base")
    import_model(str(base), tmp_path / "imported", ImportOptions(name="imported", max_length=48, forms=()))
    expected, pairs = classified("albert")
    for body in (4, 3, 2):
        student = build(shape(body_layers=body, heads=2), tmp_path / "imported")
        assert_every_head_gives(student.ranker, pairs, expected, layers=4)
    split = tmp_path / "split"
    export_checkpoint(
        student.ranker, student.tokenizer, split, card="", version="1", source="", forms=Forms(precisions=())
    )
    with pytest.raises(UnsupportedModelError, match="B2 2H2, and its body's layers are one"):
        build(shape(body_layers=1, heads=2), split)


def test_heads_on_albert_have_a_copy_of_the_shared_layer_each(tmp_path: Path) -> None:
    """B2 2H2 of four depths: body and heads begin with the base's one layer, and train apart; an exit is within."""
    base = save_cross_encoder("albert", tmp_path)
    shape = StudentShape(name="s", body_layers=2, heads=2, exits=(1,), **READS)
    ranker = build(shape, base).ranker
    state, source = ranker.state_dict(), transformers.AutoModel.from_pretrained(base).state_dict()
    shared = source["encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"]
    places = ("body.0", "heads.0.layers.0", "heads.1.layers.0")
    assert all(torch.equal(state[f"{place}.up.weight"], shared) for place in places)
    pairs = random_pairs([5, 9])
    logits = ranker(*map(torch.from_numpy, (pairs.token_ids, pairs.type_ids, pairs.offsets)))
    torch.autograd.backward(logits[:, 0].sum())
    reached = [ranker.get_parameter(f"{place}.up.weight").grad is not None for place in places]
    assert reached == [True, True, True]
    assert not ranker.get_parameter("heads.1.layers.0.up.weight").grad.any()  # type: ignore[union-attr]


def test_a_checkpoint_learns_on(tiny_checkpoint: Path) -> None:
    """Body, heads and common exits are taken over, missing heads copy the first, new exits are random."""
    wanted = shape(body_layers=3, heads=4, exits=(2, 3))
    student = build(wanted, tiny_checkpoint, seed=5)
    old, new = load_ranker(read_checkpoint(tiny_checkpoint)).state_dict(), student.ranker.state_dict()
    assert torch.equal(new["body.2.up.weight"], old["body.2.up.weight"])
    assert torch.equal(new["heads.1.classifier.dense.weight"], old["heads.1.classifier.dense.weight"])
    assert torch.equal(new["heads.3.classifier.dense.weight"], old["heads.0.classifier.dense.weight"])
    assert torch.equal(new["exits.0.output.weight"], old["exits.1.output.weight"])
    assert [(exit_.after, exit_.token_features) for exit_ in student.ranker.config.exits] == [(2, 3), (3, 3)]


def test_a_checkpoint_with_three_heads_gives_a_smaller_body_not_a_larger(tiny_checkpoint: Path) -> None:
    """B3 3H1 becomes B2 3H2, each head with a copy of the third layer; a body of four has no one fourth layer."""
    old = load_ranker(read_checkpoint(tiny_checkpoint)).state_dict()
    student = build(shape(body_layers=2, heads=3), tiny_checkpoint, seed=5)
    new = student.ranker.state_dict()
    for head in range(3):
        assert torch.equal(new[f"heads.{head}.layers.0.up.weight"], old["body.2.up.weight"])
        assert torch.equal(new[f"heads.{head}.layers.1.up.weight"], old[f"heads.{head}.layers.0.up.weight"])
    for wanted, message in (
        (shape(body_layers=4, heads=3), "is B3 3H1: a body of 4 layers cannot hold its heads' layers"),
        (shape(body_layers=5, heads=3), "--body-layers 5: of .* 4 layers"),
        (replace(shape(heads=3), layers=5), "--layers 5: .* has 4"),
    ):
        with pytest.raises(UnsupportedModelError, match=message):
            build(wanted, tiny_checkpoint)


def test_a_checkpoints_schedules_do_not_survive_and_its_languages_do(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Schedules and their figures were measured on the old weights; without exits they would not even fit."""
    old = read_checkpoint(tiny_checkpoint)
    tuned = TunedSchedule(schedule=(0.5, 0.5), cost=0.5, metrics={"map": 80.0, "map_loss": 1.0})
    measured = {"drop_schedule": (0.5, 0.5), "drop_minimum": 20, "tuned_schedules": (tuned,), "languages": ("en",)}
    config = RankerConfig.model_validate({**old.config.model_dump(), **measured})
    revise_checkpoint(old, tmp_path / "tuned", version="2", config=config)
    for exits in (tuple(exit_.after for exit_ in old.config.exits), ()):
        student = build(shape(heads=3, exits=exits), tmp_path / "tuned")
        after = student.ranker.config
        assert (after.drop_schedule, after.drop_minimum, after.tuned_schedules) == ((), 1, ())
        assert after.languages == ("en",)


def test_a_student_may_have_the_bases_first_layers_alone(tmp_path: Path) -> None:
    """B1 1H1 of four layers: the first two, unchanged; more than the base has is refused."""
    base = save_cross_encoder("bert", tmp_path)
    shape = StudentShape(name="s", layers=2, body_layers=1, heads=1, **READS)
    half = build(shape, base).ranker.state_dict()
    whole = build(replace(shape, layers=None, body_layers=3), base).ranker.state_dict()
    assert torch.equal(half["body.0.up.weight"], whole["body.0.up.weight"])
    assert torch.equal(half["heads.0.layers.0.up.weight"], whole["body.1.up.weight"])
    with pytest.raises(UnsupportedModelError, match=r"--layers 5: .* has 4"):
        build(replace(shape, layers=5), base)


@pytest.mark.parametrize("new", get_args(NewTypes))
def test_a_third_segment_may_get_a_token_type(new: NewTypes, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The base's table grows to three rows; a checkpoint, whose table stays, is refused."""
    shape = StudentShape(name="s", body_layers=3, heads=1, context=True, token_types=new, **READS)
    base = save_cross_encoder("bert", tmp_path)
    student = build(shape, base)
    rows = student.ranker.state_dict()["embeddings.types.weight"]
    assert len(rows) == student.ranker.config.transformer.type_vocab_size == 3
    assert torch.equal(rows[1], rows[2]) == (new == "copied")
    own = cross_encoder("bert").bert.embeddings.token_type_embeddings.weight
    assert torch.equal(rows[:2], own) == (new != "anew")
    assert set(student.encoder().encode("how", [Candidate(text="a", previous="b")]).type_ids) == {0, 1, 2}
    with pytest.raises(UnsupportedModelError, match="keeps its table of token types"):
        build(shape, tiny_checkpoint)


@pytest.mark.parametrize(
    ("objective", "teachers", "dropout", "told"),
    [
        (StudentObjective(), [], 0.0, "heads 1, 2, 3"),
        (StudentObjective(alpha=(0.1, 0.5, 0.9)), [], 0.0, "heads 1, 2, 3"),  # no teacher is weighed
        (StudentObjective(weights=(1.0, 0.5, 1.0)), [], 0.0, "heads 1, 3"),
        (StudentObjective(), ["a"], 0.0, "heads 1, 2, 3"),
        (StudentObjective(tau=(1.0, 3.0, 5.0)), ["a"], 0.0, ""),
        (StudentObjective(), ["a", "b", "a"], 0.0, "heads 1, 3"),
        (StudentObjective(), ["a", "b", "c"], 0.0, ""),
        (StudentObjective(), [], 0.1, ""),
    ],
)
def test_heads_that_would_stay_copies_are_told(
    objective: StudentObjective, teachers: list[str], dropout: float, told: str, tmp_path: Path
) -> None:
    """They start from the classifier of a cross-encoder, and nothing makes them differ."""
    ranker = build(shape(heads=3, body_layers=1), save_cross_encoder("bert", tmp_path)).ranker
    line = copied_heads(ranker, objective, teachers, dropout=dropout)
    assert line.startswith(f"{told} start from the same weights" if told else "")
    assert bool(line) == bool(told)


def test_heads_with_classifiers_of_their_own_are_no_copies(tmp_path: Path) -> None:
    """An encoder has no classifier, so that each head's is drawn; one head has no copy."""
    transformers.BertModel(hugging_face_config("bert")).save_pretrained(tmp_path / "encoder")
    save_cross_encoder("bert", tmp_path / "cross-encoder")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tmp_path / "cross-encoder" / name, tmp_path / "encoder")
    for heads, base in ((3, "encoder"), (1, "cross-encoder")):
        ranker = build(shape(heads=heads, body_layers=1), tmp_path / base).ranker
        assert not copied_heads(ranker, StudentObjective(), [], dropout=0.0)

"""Small tokenizers, networks and checkpoints, made on the spot. Their weights are random: they rank nothing."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from cerberank_models.config import EncodingConfig, ExitConfig, RankerConfig
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.convert.from_hugging_face import initialise, ranker_config
from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.layout import PaddedLayout
from cerberank_models.network.ranking_network import RankingNetwork

TEXT = (
    "how tall is the tower a b c d e what do bees make honey from who wrote opera carmen it was built in paris metres "
    "word river city mark ##s ##ing ##ed ? . , ' - 1 8 9 3 0"
)
WORDS = TEXT.split()
ENCODING = EncodingConfig(max_length=48, question_length=16)
LAYERS = 4
ONE_STAGE: dict[str, Any] = {"body_layers": 1, "heads": 1, "exits": (), "num_hidden_layers": 2}
"""B1 1H1, whose one graph takes a fifth of the time that those of three stages take."""


def bert_tokenizer() -> Tokenizer:
    """WordPiece over WORDS, letters and a few pieces, as BERT's normaliser and splitter feed it."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def roberta_tokenizer() -> Tokenizer:
    """Byte-level BPE without merges: every byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer


def albert_tokenizer() -> Tokenizer:
    """Unigram over WORDS and letters, as SentencePiece makes them: a blank is part of the word behind it."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = ["<pad>", "<unk>", "[CLS]", "[SEP]", *(f"▁{word}" for word in dict.fromkeys(WORDS)), "▁", *letters]
    vocabulary = [(piece, 0.0 if index < 4 else -2.0 - index / 100) for index, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=1))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "<unk>", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def hugging_face_config(family: str, **changes: object) -> transformers.PretrainedConfig:
    """Four narrow layers of `family` with weights large enough that mistakes show."""
    shape = {
        "vocab_size": 300,
        "hidden_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "num_labels": 2,
    }
    if family == "electra":
        shape["embedding_size"] = 16
    if family in ("roberta", "xlm-roberta"):
        shape |= {"type_vocab_size": 1, "pad_token_id": 1, "max_position_embeddings": 66}
    if family == "distilbert":
        shape["hidden_dim"] = shape.pop("intermediate_size")
    if family == "modernbert":
        # Local attention reads 4 tokens to each side.
        special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
        shape |= special | {"local_attention": 8}
    if family == "albert":
        shape |= {"embedding_size": 16, "pad_token_id": 0, "num_hidden_groups": 1}
    classes = {
        "albert": transformers.AlbertConfig,
        "bert": transformers.BertConfig,
        "distilbert": transformers.DistilBertConfig,
        "electra": transformers.ElectraConfig,
        "modernbert": transformers.ModernBertConfig,
        "roberta": transformers.RobertaConfig,
        "xlm-roberta": transformers.XLMRobertaConfig,
    }
    return classes[family](**(shape | changes))


def cross_encoder(family: str, *, seed: int = 0, **changes: object) -> transformers.PreTrainedModel:
    """A Hugging Face sequence classifier in evaluation mode."""
    torch.manual_seed(seed)
    config = hugging_face_config(family, **changes)
    return transformers.AutoModelForSequenceClassification.from_config(config).eval()


def xlm_roberta_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Hugging Face's own class, a SentencePiece unigram, over WORDS and letters."""
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = [*dict.fromkeys(f"▁{word}" for word in WORDS), "▁", *(chr(code) for code in range(ord("a"), ord("z") + 1))]
    vocabulary = special + [(piece, -2.0 - index / 100) for index, piece in enumerate(pieces)]
    return transformers.XLMRobertaTokenizer(vocab=vocabulary)


def save_cross_encoder(family: str, folder: Path, **changes: object) -> Path:
    """A cross-encoder with its tokenizer as `from_pretrained` reads them."""
    files, state = _cross_encoder_files(family, json.dumps(changes, sort_keys=True))
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    torch.set_rng_state(state)
    return folder


@cache
def _cross_encoder_files(family: str, changes: str) -> tuple[dict[str, bytes], Tensor]:
    """The files of a cross-encoder, which some hundred tests write, and PyTorch's random state after making it.

    With this state, what a test draws next does not depend on the tests before it.
    """
    with TemporaryDirectory() as folder:
        _make_cross_encoder(family, Path(folder), **json.loads(changes))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}, torch.get_rng_state()


def _make_cross_encoder(family: str, folder: Path, **changes: object) -> None:
    cross_encoder(family, **changes).save_pretrained(folder)
    if family == "xlm-roberta":
        xlm_roberta_tokenizer().save_pretrained(folder)
        return
    tokenizers = {"roberta": roberta_tokenizer, "albert": albert_tokenizer}
    types = family not in ("roberta", "distilbert", "modernbert")
    save_tokenizer(tokenizers.get(family, bert_tokenizer)(), folder, types=types)


def save_tokenizer(tokenizer: Tokenizer, folder: Path, *, types: bool = True, **options: Any) -> None:
    """Write a tokenizer as transformers does; its special tokens are known by their names, as BERT's or RoBERTa's."""
    marks = {"unk": ("[UNK]", "<unk>"), "pad": ("[PAD]", "<pad>"), "cls": ("[CLS]", "<s>"), "sep": ("[SEP]", "</s>")}
    known = tokenizer.get_vocab()
    special = {f"{kind}_token": next(mark for mark in both if mark in known) for kind, both in marks.items()}
    names = ["input_ids", "attention_mask", *["token_type_ids"] * types]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=names, **special, **options
    ).save_pretrained(folder)


def random_ranker(
    *,
    family: str = "bert",
    body_layers: int = 3,
    heads: int = 3,
    exits: tuple[int, ...] = (1, 2),
    seed: int = 0,
    dropout: float = 0.0,
    **changes: object,
) -> RankingNetwork:
    """A ranker whose every weight is random; `changes` are of its Hugging Face configuration."""
    config = ranker_config(
        hugging_face_config(family, **changes),
        name="random-tiny",
        body_layers=body_layers,
        heads=heads,
        exits=tuple(ExitConfig(after=after, token_features=3 if after == 2 else 0) for after in exits),
        encoding=ENCODING,
    )
    torch.manual_seed(seed)  # for the embeddings
    ranker = RankingNetwork(config, dropout=dropout)
    initialise(ranker, seed=seed, deviation=0.3)
    return ranker.eval()


def random_checkpoint(
    path: Path,
    *,
    name: str = "random-tiny",
    version: str = "1",
    seed: int = 0,
    precisions: tuple[str, ...] = ("fp32", "int8"),
    **shape: Any,
) -> Path:
    """A checkpoint of `random_ranker`, by default with two exits and three heads: weights, and graphs in `precisions`.

    A graph takes a third of a second to export, and half a second more for each layer. One thread measures the ranges
    of int8: another number of them rounds in another way.
    """
    torch.set_num_threads(1)
    ranker = random_ranker(seed=seed, **shape)
    ranker.config = RankerConfig.model_validate({**ranker.config.model_dump(), "name": name})
    card = "# random\n\nRandom weights, for tests.\n"
    bounds = {"fp32": 1e-4, "int8": 1.0}
    export_checkpoint(
        ranker,
        bert_tokenizer(),
        path,
        card=card,
        version=version,
        source="tests",
        forms=Forms(precisions=precisions, parity={precision: bounds[precision] for precision in precisions}),
    )
    return path


def random_pairs(lengths: list[int], *, seed: int = 0, types: int = 2) -> EncodedPairs:
    """Packed random token ids with the given lengths; the second half of each pair has type 1."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[Tensor] = []
    type_ids: list[Tensor] = []
    for length in lengths:
        ids.append(torch.randint(5, 60, (length,), generator=generator))
        second = torch.arange(length) >= length // 2
        type_ids.append(second.long() if types > 1 else torch.zeros(length, dtype=torch.long))
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    return EncodedPairs(
        token_ids=torch.cat(ids).int().numpy(),
        type_ids=torch.cat(type_ids).int().numpy(),
        offsets=offsets.numpy(),
        truncated=torch.zeros(len(lengths), dtype=torch.bool).numpy(),
    )


def forward_padded(
    ranker: RankingNetwork, token_ids: Tensor, type_ids: Tensor, mask: Tensor, stage: int = -1
) -> Tensor:
    """The logits of one stage on padded ids and mask `[N, S]`, the oracle of the packed forward pass."""
    layout = PaddedLayout(mask)
    stage %= len(ranker.config.stages)
    hidden = ranker.encoder.embed(token_ids, type_ids, layout)
    hidden = ranker.encoder.run(hidden, layout, 0, ranker.config.stages[stage].start)
    return ranker.run_stage(hidden, layout, stage)[1]


def padded(pairs: EncodedPairs, pad: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """`pairs` as padded token ids, type ids and mask, `[N, S]`."""
    longest = int(pairs.lengths.max())
    ids = torch.full((len(pairs), longest), pad)
    types = torch.zeros((len(pairs), longest), dtype=torch.long)
    mask = torch.zeros((len(pairs), longest), dtype=torch.bool)
    for row, (start, stop) in enumerate(zip(pairs.offsets[:-1], pairs.offsets[1:], strict=True)):
        ids[row, : stop - start] = torch.from_numpy(pairs.token_ids[start:stop])
        types[row, : stop - start] = torch.from_numpy(pairs.type_ids[start:stop])
        mask[row, : stop - start] = True
    return ids, types, mask

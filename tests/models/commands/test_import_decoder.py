"""Decoders score as transformers' own causal language models do, with the prompts of their makers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import transformers
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from tests.decoders import last_logits, qwen_tokenizer, save_decoder
from tests.program import program
from torch import nn

from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Scores, probability
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.commands.import_model import import_model
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.encoding import Candidate, concat_pairs
from cerberank_models.golden import check_golden
from cerberank_models.rank_pairs import rank_pairs
from cerberank_models.ranker import Ranker

main = program("import")
QUESTION = "how tall is the tower?"
TEXTS = ["it is 330 metres.", "", " in paris\n", "it was built in 1889 by Eiffel. " * 30]
SAME = 1e-5
"""The promise is 1e-3 of the probability; float32 itself leaves less than a tenth of this in two layers."""


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Qwen3 reranker's twin and the checkpoint `out` that is made of it."""
    folder = tmp_path_factory.mktemp("qwen")
    save_decoder(folder / "Qwen3-Reranker-tiny")
    assert main([str(folder / "Qwen3-Reranker-tiny"), str(folder / "out")]) == 0
    return folder


def scores(checkpoint: Checkpoint, texts: list[str], *, instruction: str | None = None) -> Scores:
    pairs = checkpoint.encoder().encode(QUESTION, [Candidate(text=text) for text in texts], instruction=instruction)
    return rank_pairs(open_backend(checkpoint, kind="torch", precision="fp32"), pairs).scores


def card_ids(text: str, instruction: str) -> list[int]:
    """The tokens of a pair as the model card of Qwen3-Reranker makes them: three texts, the middle one cut at 512."""
    tokenizer = qwen_tokenizer()
    before, behind = (
        tokenizer.encode(part).ids
        for part in (
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
            'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
            "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        )
    )
    body = tokenizer.encode(f"<Instruct>: {instruction}\n<Query>: {QUESTION}\n<Document>: {text}").ids
    return before + body[: 512 - len(before) - len(behind)] + behind


USUAL = "Given a web search query, retrieve relevant passages that answer the query"


@pytest.mark.parametrize("instruction", [None, "Find texts about food, not towers."])
def test_a_qwen3_reranker_gives_its_own_probability(instruction: str | None, qwen: Path) -> None:
    """The probability of yes against no, in a batch padded to the left and to the right; a text that is too long loses
    its end.
    """
    expected = []
    for left in (True, False):
        ids = [card_ids(text, instruction or USUAL) for text in TEXTS]
        logits = last_logits(qwen / "Qwen3-Reranker-tiny", ids, ["no", "yes"], left=left)
        expected.append(probability(logits[:, 1] - logits[:, 0]))
    got = scores(read_checkpoint(qwen / "out"), TEXTS, instruction=instruction)
    assert np.ptp(got) > 1000 * SAME
    for wanted in expected:
        assert np.abs(got - wanted).max() <= SAME


@pytest.mark.usefixtures("imports_here")
def test_torch_is_chosen_for_a_decoder(qwen: Path) -> None:
    """A source and a checkpoint alike are run in fp32, as nothing else can run them."""
    wanted = scores(read_checkpoint(qwen / "out"), TEXTS[::2])
    for source in (qwen / "out", qwen / "Qwen3-Reranker-tiny"):
        ranker = Ranker.load(source, cache=qwen / "cache", threads=1)
        assert ranker.backend.precision == "fp32"
        got = ranker.predict([(QUESTION, text) for text in TEXTS[::2]])
        np.testing.assert_allclose(got, wanted, atol=SAME)


def test_scores_do_not_depend_on_the_batch(qwen: Path) -> None:
    """Alone, with others of its question, and with another question that begins alike; shared or not."""
    checkpoint = read_checkpoint(qwen / "out")
    backend, encoder = open_backend(checkpoint, kind="torch", precision="fp32"), checkpoint.encoder()
    whole = scores(checkpoint, TEXTS)
    alone = np.concatenate([scores(checkpoint, [text]) for text in TEXTS])
    other = encoder.encode("how old is the tower?", [Candidate(text=text) for text in TEXTS])
    own = encoder.encode(QUESTION, [Candidate(text=text) for text in TEXTS])
    assert own.prefixes is not None
    both = backend.run(backend.start(concat_pairs([other, own])), 0).scores[len(TEXTS) :]
    plain = backend.run(backend.start(replace(concat_pairs([own]), prefixes=None)), 0).scores
    for each in (alone, both, plain):
        assert np.abs(each - whole).max() <= SAME
    check_golden(open_backend(checkpoint, kind="torch", precision="bf16"), checkpoint, "bf16")


@pytest.mark.parametrize(("family", "name"), [("qwen2", "mxbai-rerank-tiny-v2"), ("qwen3", "zerank-tiny")])
def test_models_of_the_same_form_have_their_own_prompts(family: str, name: str, tmp_path: Path) -> None:
    """The pieces of mxbai are tokenised apart and it answers 0 or 1; zerank has one token, whose logit is a fifth."""
    source = save_decoder(tmp_path / name, family=family)
    import_model(str(source), tmp_path / "out")
    checkpoint, tokenizer = read_checkpoint(tmp_path / "out"), qwen_tokenizer()
    texts = TEXTS[:3]
    if name.startswith("mxbai"):
        system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        task = (
            "You are a search relevance expert who evaluates how well documents match search queries. For each "
            "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
            "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
        )
        start, end = (
            f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n",
            "<|im_end|>\n<|im_start|>assistant\n",
        )
        ids = [
            [
                number
                for piece in (start, f"query: {QUESTION}", "\n", f"document: {text}", "\n", task, end)
                for number in tokenizer.encode(piece).ids
            ]
            for text in texts
        ]
        logits = last_logits(source, ids, ["0", "1"])
        expected = probability(logits[:, 1] - logits[:, 0])
    else:
        chat = "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
        ids = [tokenizer.encode(chat.format(QUESTION, text)).ids for text in texts]
        expected = probability(last_logits(source, ids, ["Yes"])[:, 0] / 5)
        assert checkpoint.config.score_form == "sigmoid of the logit of the token 'Yes' divided by 5"
    assert np.ptp(expected) > 100 * SAME
    assert np.abs(scores(checkpoint, texts) - expected).max() <= SAME


TEMPLATE = """<|im_start|>system
Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer \
can only be "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: {{ messages | selectattr("role", "eq", "system") | map(attribute="content") | first | default("USUAL") }}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
<|im_start|>assistant
<think>

</think>{{ "\n\n" }}""".replace("USUAL", USUAL)


def test_a_decoder_of_sentence_transformers_scores_as_there(tmp_path: Path) -> None:
    """Modules are a Transformer and LogitScore; the prompt is known by the chat template, not by the folder's name."""
    source, tokenizer = save_decoder(tmp_path / "x"), qwen_tokenizer()
    fast = transformers.AutoTokenizer.from_pretrained(source)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(source)
    yes, no = (tokenizer.token_to_id(word) for word in ("yes", "no"))
    model = CrossEncoder(
        modules=[Transformer(str(source), transformer_task="text-generation"), LogitScore(yes, no)], device="cpu"
    )
    model.save_pretrained(str(tmp_path / "model"))
    import_model(str(tmp_path / "model"), tmp_path / "out")
    texts = TEXTS[:3]
    wanted = model.predict([(QUESTION, text) for text in texts], activation_fn=nn.Sigmoid(), show_progress_bar=False)
    assert np.abs(scores(read_checkpoint(tmp_path / "out"), texts) - wanted).max() <= SAME
    settings = tmp_path / "model" / "1_LogitScore" / "config.json"
    settings.write_text(json.dumps({"true_token_id": no, "false_token_id": yes}))
    with pytest.raises(UnsupportedModelError, match="scores by the tokens"):
        import_model(str(tmp_path / "model"), tmp_path / "other")


def test_what_cannot_be_scored_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A chat model, a prompt that leaves no room, layers with windows, and tokens that the vocabulary lacks."""
    source = save_decoder(tmp_path / "chat")
    for options, message in (
        ([], "is not known: --prompt names it (qwen3-reranker, mxbai-rerank-v2, zerank, or a JSON file)"),
        (["--prompt", "nothing.json"], "is none of"),
        (["--prompt", "zerank", "--max-length", "24"], "--max-length sets more"),
        (["--prompt", "zerank", "--max-length", "513"], "more than the 512 tokens"),
        (["--prompt", str(tmp_path / "own.json")], "lacks the token 'perhaps'"),
    ):
        (tmp_path / "own.json").write_text(json.dumps({"tail": ["?"], "yes": "perhaps"}))
        assert main([str(source), str(tmp_path / "out"), *options]) == 1
        assert message in capsys.readouterr().err
    config = source / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "layer_types": ["sliding_attention"] * 2}))
    assert main([str(source), str(tmp_path / "out"), "--prompt", "zerank"]) == 1
    assert "sliding window" in capsys.readouterr().err

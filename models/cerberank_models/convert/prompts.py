"""The prompts of known decoders that rerank, and the search for the prompt that a model was trained with.

The prompts are taken from the models' cards and from their authors' code. A chat template is searched for known text,
but never rendered, because it is a program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from cerberank_models.checkpoint.regular import SMALL, read_regular
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.modules import module_settings
from cerberank_models.convert.source import Source
from cerberank_models.transformer import PromptTemplate

LOGIT_SCORE = "LogitScore"
"""The module of sentence-transformers that reads a token's logit at the end of a prompt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownPrompt:
    """A prompt, and the properties by which its models are recognised."""

    prompt: PromptTemplate
    name: re.Pattern[str]
    """Matches the names of repositories and folders of these models."""
    mark: str | None = None
    """A text that only the chat templates of these models contain."""
    joined: bool = True
    """True if the model's own code tokenises the whole text at once, with the same tokens as for separate pieces."""


PROMPTS: Mapping[str, KnownPrompt] = MappingProxyType(
    {
        "qwen3-reranker": KnownPrompt(
            name=re.compile(r"qwen3[-_.]?reranker", re.IGNORECASE),
            mark="Judge whether the Document meets the requirements based on the Query and the Instruct provided.",
            prompt=PromptTemplate(
                head=(
                    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
                    'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
                    "<|im_start|>user\n",
                ),
                instruction=("<Instruct>:", " {instruction}\n"),
                lead=("<Query>:",),
                question=" {question}\n",
                join=("<Document>:",),
                candidate=" {candidate}",
                tail=("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",),
                default_instruction="Given a web search query, retrieve relevant passages that answer the query",
                yes="yes",
                no="no",
            ),
        ),
        "mxbai-rerank-v2": KnownPrompt(
            name=re.compile(r"mxbai-rerank-\w+-v2", re.IGNORECASE),
            mark="You are a search relevance expert who evaluates how well documents match search queries.",
            joined=False,
            prompt=PromptTemplate(
                head=(
                    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
                    "<|im_end|>\n<|im_start|>user\n",
                ),
                instruction=("instruction: {instruction}\n",),
                question="query: {question}",
                join=("\n",),
                candidate="document: {candidate}",
                tail=(
                    "\n",
                    "You are a search relevance expert who evaluates how well documents match search queries. For each "
                    "query-document pair, carefully analyze the semantic relationship between them, then provide your "
                    "binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:",
                    "<|im_end|>\n<|im_start|>assistant\n",
                ),
                yes="1",
                no="0",
            ),
        ),
        "zerank": KnownPrompt(
            name=re.compile(r"zerank", re.IGNORECASE),
            prompt=PromptTemplate(
                head=("<|im_start|>system",),
                question="\n{question}",
                join=("<|im_end|>\n<|im_start|>user",),
                candidate="\n{candidate}",
                tail=("<|im_end|>\n<|im_start|>assistant\n",),
                yes="Yes",
                divisor=5.0,
            ),
        ),
    }
)


def find_prompt(source: Source, tokenizer: Any, named: str | None) -> KnownPrompt:
    """The prompt of the decoder at `source`: `named`, or else the prompt found by the model's name or chat template.

    `named` is a key of `PROMPTS`, or a JSON file with the fields of a `PromptTemplate`. Raises UnsupportedModelError.
    """
    if named is not None:
        return PROMPTS[named] if named in PROMPTS else _prompt_of(Path(named))
    template = tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else ""
    for known_prompt in PROMPTS.values():
        if known_prompt.name.search(source.name) or (known_prompt.mark is not None and known_prompt.mark in template):
            return known_prompt
    raise UnsupportedModelError(
        f"{source.place} is a decoder, and the text that it expects around a question and a candidate is not known: "
        f"--prompt names it ({', '.join(PROMPTS)}, or a JSON file)"
    )


def _prompt_of(file: Path) -> KnownPrompt:
    try:
        prompt = PromptTemplate.model_validate_json(read_regular(file, SMALL))
    except (OSError, ValidationError) as error:
        raise UnsupportedModelError(
            f"--prompt {file} is none of {', '.join(PROMPTS)} and no file with a prompt: {error}"
        ) from error
    return KnownPrompt(prompt=prompt, name=re.compile(re.escape(file.stem)), joined=False)


def answer_tokens(source: Source, tokenizer: Any, prompt: PromptTemplate) -> list[int]:
    """The ids of the tokens from whose logits a score is computed: `no`, if the prompt has one, and `yes`.

    Raises UnsupportedModelError if the vocabulary lacks one, or if the model's own settings name other tokens.
    """
    words = [word for word in (prompt.no, prompt.yes) if word is not None]
    plain = tokenizer.backend_tokenizer
    ids = [plain.token_to_id(word) for word in words]
    if missing := [word for word, number in zip(words, ids, strict=True) if number is None]:
        raise UnsupportedModelError(f"the vocabulary of {source.place} lacks the token {', '.join(map(repr, missing))}")
    if (settings := module_settings(source, LOGIT_SCORE)) is not None:
        stated = [settings[name] for name in ("false_token_id", "true_token_id") if settings.get(name) is not None]
        if stated != ids:
            raise UnsupportedModelError(
                f"{source.place} scores by the tokens {json.dumps(stated)}, its prompt by {words} ({json.dumps(ids)})"
            )
    return ids

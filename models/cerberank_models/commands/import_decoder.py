"""Imports a decoder that reranks by a token's logit as a checkpoint with weights only, for `cerberank import`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from cerberank_models.config import EncodingConfig
from cerberank_models.convert.checkpoint import (
    PARITY,
    Forms,
    check_differing,
    check_parity,
    export_checkpoint,
    golden_scores,
)
from cerberank_models.convert.decoders import decoder_config, decoder_ranker, decoder_scores, read_decoder
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.own_tokenizer import plain_tokenizer
from cerberank_models.convert.prompts import KnownPrompt, answer_tokens, find_prompt
from cerberank_models.convert.source import Source
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.frame import CANDIDATE, INSTRUCTION, QUESTION, prompt_frame
from cerberank_models.transformer import PromptTemplate

logger = logging.getLogger(__name__)

QUESTION_LENGTH = 128
"""The most tokens of a question, if the prompt leaves as many."""
LEAST_ROOM = 16
TRYING = (("What is 2+2?", ("", "4", " indented", "\nA line\n", "It's 330 m (1,083 ft)!")), ("3 \n", ("?", "ok.\n\n")))
"""Questions with candidates that begin or end with characters that tokenizers may join to the text around them."""
CARD = """# {name}

Imported from the decoder `{source}` by `cerberank import`; the weights are unchanged, without the rows of the language
model's head that no score reads. A score is {score}. Pairs have at most {length} tokens, of which the prompt takes
{prompt}. It is run by the torch backend. Data, licence, intended use and figures are those of the source: see its
model card.
"""


def import_decoder(
    source: Source,
    out: Path,
    *,
    described: Any,
    tokenizer: Any,
    name: str,
    max_length: int,
    prompt: str | None,
) -> None:
    """Write the checkpoint `out` of the decoder at `source`, whose pairs have at most `max_length` tokens.

    `prompt` names the text around its questions and candidates (`find_prompt`). Raises UnsupportedModelError for a
    family without a body in this package, and ParityError if the ranker's scores differ from the language model's.
    """
    known, plain = find_prompt(source, tokenizer, prompt), plain_tokenizer(tokenizer)
    answers = answer_tokens(source, tokenizer, known.prompt)
    taken = sum(prompt_frame(plain, known.prompt, None).special(2))
    config = decoder_config(described, name=name, encoding=_encoding(known.prompt, max_length, taken))
    config = config.model_copy(update={"languages": source.languages})
    encoder = PairEncoder(plain, family=config.body.family, config=config.encoding, type_vocab_size=1)
    if known.joined:
        check_joined(encoder, plain, known)
    network = read_decoder(source)
    wanted = decoder_scores(network, encoder, GOLDEN_TEXTS, answers=answers, divisor=known.prompt.divisor)
    ranker = decoder_ranker(config, network, answers)
    del network
    got = golden_scores(ranker, encoder)
    check_parity("imported", wanted, got, PARITY["fp32"])
    check_differing(source.place, got)
    export_checkpoint(
        ranker,
        plain,
        out,
        card=CARD.format(
            name=name,
            source=source.place,
            score=f"the {config.score_form} as the next one",
            length=max_length,
            prompt=taken,
        ),
        version=source.content()[:40],
        source=source.place,
        forms=Forms(precisions=()),
    )


def check_joined(encoder: PairEncoder, tokenizer: Tokenizer, known: KnownPrompt) -> None:
    """Raise UnsupportedModelError unless the pieces of a prompt give the same tokens as the whole text."""
    prompt = known.prompt
    asked = prompt.default_instruction
    pieces = "".join(prompt.instruction).replace(INSTRUCTION, asked) if asked is not None else ""
    for question, texts in (*GOLDEN_TEXTS, *TRYING):
        pairs = encoder.encode(question, [Candidate(text=text) for text in texts])
        for row, text in enumerate(texts):
            if pairs.truncated[row] or pairs.question_truncated:
                continue
            whole = "".join(
                [
                    *prompt.head,
                    pieces,
                    *prompt.lead,
                    prompt.question.replace(QUESTION, question),
                    *prompt.join,
                    prompt.candidate.removesuffix(CANDIDATE) + text,
                    *prompt.tail,
                ]
            )
            own = tokenizer.encode(whole, add_special_tokens=False).ids
            got = pairs.token_ids[pairs.offsets[row] : pairs.offsets[row + 1]].tolist()
            if own != got:
                place = next((i for i, both in enumerate(zip(own, got, strict=False)) if both[0] != both[1]), len(got))
                raise UnsupportedModelError(
                    f"the prompt with {question!r} and {text[:40]!r} has {len(own)} tokens as a whole and {len(got)} "
                    f"in pieces, which differ at place {place}: the tokenizer is not the one that the prompt is for"
                )


def _encoding(prompt: PromptTemplate, max_length: int, taken: int) -> EncodingConfig:
    """The encoding of pairs of at most `max_length` tokens; the prompt takes `taken` of them.

    Raises UnsupportedModelError if too few tokens are left.
    """
    room = max_length - taken
    if room < LEAST_ROOM:
        raise UnsupportedModelError(
            f"the prompt takes {taken} of {max_length} tokens, so that too little is left for a question and a "
            "candidate: --max-length sets more"
        )
    return EncodingConfig(max_length=max_length, question_length=min(QUESTION_LENGTH, room // 2), prompt=prompt)

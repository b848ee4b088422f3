"""Imports a decoder that reranks by a token's logit as a checkpoint with weights only, for `cerberank import`."""

from __future__ import annotations

from tokenizers import Tokenizer

from cerberank_models.commands.import_options import Import
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
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS, encoded
from cerberank_models.convert.prompts import KnownPrompt, answer_tokens, find_prompt
from cerberank_models.convert.source_tokenizer import first_difference, longest_pair, plain_tokenizer, read_tokenizer
from cerberank_models.encoding import PairEncoder
from cerberank_models.frame import CANDIDATE, INSTRUCTION, QUESTION, prompt_frame
from cerberank_models.transformer import PromptTemplate

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


def import_decoder(model: Import) -> None:
    """Write the checkpoint of a decoder, with its weights only.

    The option `prompt` names the text around its questions and candidates (`find_prompt`). Raises UnsupportedModelError
    for a family without a body in this package, and ParityError if the ranker's scores differ from the language
    model's.
    """
    # Pairs, in which the prompt takes a part of the room.
    tokenizer = read_tokenizer(model.source, model.vocabulary)
    most = longest_pair(tokenizer, model.configuration.max_position_embeddings)
    model.check_length(most, f"tokens that {model.place} reads")
    length = model.length(most)
    known_prompt = find_prompt(model.source, tokenizer, model.options.prompt)
    plain = plain_tokenizer(tokenizer)
    answers = answer_tokens(model.source, tokenizer, known_prompt.prompt)
    taken = sum(prompt_frame(plain, known_prompt.prompt, None).special(2))
    config = decoder_config(
        model.configuration, name=model.name, encoding=model.with_windows(_encoding(known_prompt.prompt, length, taken))
    )
    config = config.model_copy(update={"languages": model.source.languages})
    encoder = PairEncoder(plain, family=config.body.family, config=config.encoding, type_vocab_size=1)
    if known_prompt.joined:
        check_joined(encoder, plain, known_prompt)

    # The language model and the ranker share their memory.
    network = read_decoder(model.source)
    wanted = decoder_scores(network, encoder, GOLDEN_TEXTS, answers=answers, divisor=known_prompt.prompt.divisor)
    ranker = decoder_ranker(config, network, answers)
    del network
    got = golden_scores(ranker, encoder)
    check_parity("imported", wanted, got, PARITY["fp32"])
    check_differing(model.place, got)
    export_checkpoint(
        ranker,
        plain,
        model.out,
        card=CARD.format(
            name=model.name,
            source=model.place,
            score=f"the {config.score_form} as the next one",
            length=length,
            prompt=taken,
        ),
        version=model.version,
        source=model.place,
        forms=Forms(precisions=()),
    )


def check_joined(encoder: PairEncoder, tokenizer: Tokenizer, known_prompt: KnownPrompt) -> None:
    """Raise UnsupportedModelError unless the pieces of a prompt give the same tokens as the whole text."""
    prompt = known_prompt.prompt
    task = prompt.default_instruction
    instruction = "".join(prompt.instruction).replace(INSTRUCTION, task) if task is not None else ""
    texts = (*GOLDEN_TEXTS, *TRYING)
    # A pair that was cut has other tokens than its whole text.
    for (question, candidates), pairs in zip(texts, encoded(encoder, texts), strict=True):
        for row, text in enumerate(candidates):
            if pairs.truncated[row] or pairs.question_truncated:
                continue
            joined = "".join(
                [
                    *prompt.head,
                    instruction,
                    *prompt.lead,
                    prompt.question.replace(QUESTION, question),
                    *prompt.join,
                    prompt.candidate.removesuffix(CANDIDATE) + text,
                    *prompt.tail,
                ]
            )
            wanted = tokenizer.encode(joined, add_special_tokens=False).ids
            got = pairs.token_ids[pairs.offsets[row] : pairs.offsets[row + 1]].tolist()
            if wanted != got:
                place = first_difference(wanted, got)
                raise UnsupportedModelError(
                    f"the prompt with {question!r} and {text[:40]!r} has {len(wanted)} tokens as a whole and "
                    f"{len(got)} in pieces, which differ at place {place}: the tokenizer is not the one that the "
                    "prompt is for"
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

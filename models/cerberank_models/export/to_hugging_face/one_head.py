"""One head of a ranker with the body below it: an ordinary encoder of b + h layers with one classifier."""

from __future__ import annotations

from cerberank_models.config import RankerConfig
from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.network.ranker import Ranker
from cerberank_models.transformer import OpaqueTransformer


def check_exportable(config: RankerConfig, head: int | None) -> None:
    """Raise UnsupportedModelError, which says what is possible, unless `head` (from 1) can be a sequence classifier.

    None is the only head of a ranker that has nothing else: no further heads, no exits and no first stage.
    """
    name, heads = config.name, config.architecture.heads
    if isinstance(config.transformer, OpaqueTransformer):
        raise UnsupportedModelError(
            f"{name} is an opaque graph ({config.transformer.model_type}) without layers to export: what it was "
            "imported from is its Hugging Face form"
        )
    if config.encoding.segments == 3:
        raise UnsupportedModelError(
            f"{name} reads the previous and the next sentence as a third segment, and the tokenizers and CrossEncoder "
            "of Hugging Face read pairs: it can be served by Cerberank alone"
        )
    if not heads:
        raise UnsupportedModelError(
            f"{name} has no heads: its last score is an exit's, of layers over the mean of all tokens that no sequence "
            "classifier of transformers has. Only a head can be exported"
        )
    if head is not None and not 1 <= head <= heads:
        raise UnsupportedModelError(f"{name} is {config.architecture}: --head is from 1 to {heads}, not {head}")
    if head is not None:
        return
    parts = [f"{heads} heads"] if heads > 1 else []
    parts += ["exits"] if config.exits else []
    parts += ["a first stage"] if config.first_stage else []
    if parts:
        raise UnsupportedModelError(
            f"{name} is {config.architecture} with {' and '.join(parts)}, and a sequence classifier is one encoder "
            f"with one classifier: --head N (1{f' to {heads}' if heads > 1 else ''}) exports that head with the body "
            "below it, which scores exactly as the head does, and leaves the rest out"
        )


def one_head(ranker: Ranker, head: int) -> Ranker:
    """The ranker `B_b 1H_h` of a ranker's body and its `head` (from 1), without exits, first stage or schedules."""
    config = ranker.config
    single = Ranker(
        RankerConfig(
            name=config.name,
            transformer=config.transformer,
            architecture=config.architecture.model_copy(update={"heads": 1}),
            encoding=config.encoding,
        )
    )
    state, own = ranker.state_dict(), f"heads.{head - 1}."
    kept = {name: value for name, value in state.items() if name.startswith(("embeddings.", "body."))}
    kept |= {name.replace(own, "heads.0.", 1): value for name, value in state.items() if name.startswith(own)}
    single.load_state_dict(kept, strict=True)
    return single.float().eval()

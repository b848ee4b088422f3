"""Checks that a network's activations fit into float16, and chooses bfloat16 if they do not.

The largest float16 number is 65,504. Some trained encoders have a few channels with large values, and a single infinity
makes every score of its pair NaN. bfloat16 has the range of float32, but fewer digits than float16.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.network.text_ranker import TextVectors

logger = logging.getLogger(__name__)

MARGIN = 4.0
"""The activations times this factor must fit into float16, because those of other texts may be larger."""
LARGEST = torch.finfo(torch.float16).max / MARGIN


def largest_activation(network: RankingNetwork | TextVectors, batches: Sequence[EncodedPairs]) -> float:
    """The largest magnitude in the inputs and outputs of any module of `network`, over all stages."""
    largest = 0.0

    def look(module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        nonlocal largest
        for tensor in (*inputs, output):
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.numel():
                # NaN is replaced by infinity, because max() may lose a NaN.
                largest = max(largest, tensor.abs().nan_to_num(nan=torch.inf, posinf=torch.inf).max().item())

    hooks = [module.register_forward_hook(look) for module in network.modules()]
    try:
        with torch.inference_mode():
            for batch in batches:
                ids, types, offsets = map(torch.from_numpy, (batch.token_ids, batch.type_ids, batch.offsets))
                if isinstance(network, RankingNetwork):
                    network.stage_logits(ids, types, offsets, tuple(range(len(network.config.stages))))
                else:
                    network.read(ids, types, PackedLayout.of(offsets))
    finally:
        for hook in hooks:
            hook.remove()
    return largest


def usable_precision(ranker: RankingNetwork, checkpoint: Checkpoint, precision: str) -> str:
    """`precision`, or bf16 instead of fp16 if activations on the golden questions are too large for float16.

    `ranker` is the checkpoint's network in fp32 on the processor. The change to bf16 is logged as a warning.
    """
    if precision != "fp16":
        return precision
    model = f"{checkpoint.config.name} {checkpoint.manifest.version}"
    encoder = checkpoint.encoder()
    golden = [encoder.encode(each.question, each.texts) for each in checkpoint.golden]
    return half_precision(ranker, golden, model)


def half_precision(network: RankingNetwork | TextVectors, batches: Sequence[EncodedPairs], model: str) -> str:
    """fp16, or bf16 if the activations of `network` on `batches` are too large for float16.

    `network` must be in fp32 on the processor. If bf16 is chosen, a warning with the name `model` is logged.
    """
    largest = largest_activation(network, batches)
    if largest <= LARGEST:
        return "fp16"
    logger.warning(
        "%s: activations reach %.0f, fp16 ends at 65504 and needs a margin of %g: it is computed in bf16",
        model,
        largest,
        MARGIN,
    )
    return "bf16"

"""The command `cerberank checkpoint info`, which describes a checkpoint without loading its network."""

from __future__ import annotations

from pathlib import Path

from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.first_stage_files import WEIGHTS
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.config import RankerConfig
from cerberank_models.output import say, say_json
from cerberank_models.transformer import OpaqueTransformer


def info(checkpoint: Path | None = None, /, *, json: bool = False) -> None:
    """Verify a checkpoint, and show its name, version, network, forms (weights, ONNX precisions), exits and metrics.

    Args:
        checkpoint: Checkpoint folder (default: CERBERANK_CHECKPOINT, else the bundled one).
        json: Write one line of JSON.
    """
    facts = facts_of(read_checkpoint(checkpoint or default_checkpoint()))
    if json:
        say_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        say(f"{name.replace('_', ' '):<{width}}  {_text(value)}")


def facts_of(checkpoint: Checkpoint) -> dict[str, object]:
    """The values that the command shows, by name."""
    config, manifest, calibration = checkpoint.config, checkpoint.manifest, checkpoint.calibration
    forms = [f"onnx {precision}" for precision in checkpoint.precisions]
    return {
        "model": f"{config.name}@{manifest.version}",
        "folder": str(checkpoint.path),
        "created": manifest.created,
        "source": manifest.source,
        "network": _network(config),
        "languages": list(config.languages),
        "forms": [*(["weights"] if {"model.safetensors", WEIGHTS} & set(manifest.files) else []), *forms],
        "most_tokens": config.encoding.max_length,
        "windows": config.encoding.windows,
        "exits_after_layers": [exit_.after for exit_ in config.exits],
        "default_lexical_drop": config.lexical_ratio,
        "default_drops": list(config.drop_schedule or ()),
        "drops_of_longer_lists": [
            {"candidates": each.candidates, "lexical": each.lexical_ratio, "drops": list(each.schedule)}
            for each in config.longer_lists
        ],
        "schedules": [
            {"lexical": each.lexical_ratio, "drops": list(each.schedule), "cost": each.cost}
            for each in config.tuned_schedules
        ],
        "first_stage": None if config.first_stage is None else config.first_stage.name,
        "calibration_questions": None if calibration is None else calibration.data.questions,
        "metrics": dict(manifest.metrics),
    }


def _network(config: RankerConfig) -> str:
    network, first = config.transformer, config.first_stage
    if first is not None and not config.reads_pairs:
        kind = first.token_ranker if first.encoding.colbert is None else "ColBERT"
        encoder = first.transformer
        return f"{kind} of {encoder.family}, {encoder.layers} layers of width {encoder.hidden_size}; it reads no pairs"
    if isinstance(network, OpaqueTransformer):
        return f"graph of a {network.model_type}"
    return f"{config.architecture} of {network.family}, {network.layers} layers of width {network.hidden_size}"


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(map(_text, value)) or "none"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

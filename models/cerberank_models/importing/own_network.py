"""A sequence classifier as transformers loads it: its configuration, and its network with all weights.

What cannot be loaded is refused with the reason. Code that a repository brings is never run.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

from transformers import AutoConfig, AutoModelForSequenceClassification

from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.importing.source import CONFIG, Source


def read_config(source: Source) -> Any:
    """The configuration; raises UnsupportedModelError for a model that needs code of its repository."""
    try:
        return AutoConfig.from_pretrained(source.place, revision=source.commit or "main", trust_remote_code=False)
    except ValueError as error:
        if "auto_map" in json.loads((source.folder / CONFIG).read_bytes()):
            raise UnsupportedModelError(
                f"{source.place} needs Python code of its repository (auto_map in {CONFIG}), which is never run here: "
                "only architectures that transformers itself has can be imported"
            ) from error
        raise


def read_network(source: Source) -> Any:
    """The network. Raises UnsupportedModelError for damaged or missing weights, OSError where no file holds any."""
    try:
        network, loading = AutoModelForSequenceClassification.from_pretrained(
            source.place, revision=source.commit or "main", output_loading_info=True
        )
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UnsupportedModelError(f"{source.place}: its weights cannot be read: {error}") from error
    if missing := sorted(loading["missing_keys"]):
        raise UnsupportedModelError(f"{source.place} is no trained cross-encoder: it lacks {', '.join(missing)}")
    return network

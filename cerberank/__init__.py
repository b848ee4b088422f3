"""Answer ranking: a ranker in this process, clients of a service, stores of checkpoints, evaluation and training.

`from cerberank import Ranker` imports numpy and tokenizers, but neither torch nor onnxruntime, which are imported when
a checkpoint is opened. The packages `cerberank_models`, `cerberank_service` and `cerberank_training` are private: their
names may change without notice.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cerberank_models import __version__

if TYPE_CHECKING:
    from cerberank.training import distil as train
    from cerberank_models.answer import Answer, Result
    from cerberank_models.calibration import CalibrationError
    from cerberank_models.checkpoint.errors import CheckpointError
    from cerberank_models.checkpoint.store.checkpoint_store import StoreError
    from cerberank_models.client import (
        AsyncClient,
        Client,
        ConnectionFailedError,
        InvalidRequestError,
        NotFoundError,
        RequestError,
        UnauthorizedError,
        UnavailableError,
    )
    from cerberank_models.convert.checkpoint_cache import ModelImportError
    from cerberank_models.convert.source import SourceError
    from cerberank_models.encoding import Candidate
    from cerberank_models.rank_pairs import NonFiniteScoreError
    from cerberank_models.ranker import Ranker
    from cerberank_models.store import Store, StoredVersion
    from cerberank_training.data.question import DataError
    from cerberank_training.evaluation.evaluate_ranker import Report, evaluate
    from cerberank_training.runs.job import Trained

__all__ = [
    "Answer",
    "AsyncClient",
    "CalibrationError",
    "Candidate",
    "CheckpointError",
    "Client",
    "ConnectionFailedError",
    "DataError",
    "InvalidRequestError",
    "ModelImportError",
    "NonFiniteScoreError",
    "NotFoundError",
    "Ranker",
    "Report",
    "RequestError",
    "Result",
    "SourceError",
    "Store",
    "StoreError",
    "StoredVersion",
    "Trained",
    "UnauthorizedError",
    "UnavailableError",
    "__version__",
    "evaluate",
    "train",
]

_CLIENT = "cerberank_models.client"
_NAMES = {"train": "distil"}
"""The names in their modules of public names that differ."""
_MODULES = {
    "Answer": "cerberank_models.answer",
    "AsyncClient": _CLIENT,
    "CalibrationError": "cerberank_models.calibration",
    "Candidate": "cerberank_models.encoding",
    "CheckpointError": "cerberank_models.checkpoint.errors",
    "Client": _CLIENT,
    "ConnectionFailedError": _CLIENT,
    "DataError": "cerberank_training.data.question",
    "InvalidRequestError": _CLIENT,
    "ModelImportError": "cerberank_models.convert.checkpoint_cache",
    "NonFiniteScoreError": "cerberank_models.rank_pairs",
    "NotFoundError": _CLIENT,
    "Ranker": "cerberank_models.ranker",
    "Report": "cerberank_training.evaluation.evaluate_ranker",
    "RequestError": _CLIENT,
    "Result": "cerberank_models.answer",
    "SourceError": "cerberank_models.convert.source",
    "Store": "cerberank_models.store",
    "StoreError": "cerberank_models.checkpoint.store.checkpoint_store",
    "StoredVersion": "cerberank_models.store",
    "Trained": "cerberank_training.runs.job",
    "UnauthorizedError": _CLIENT,
    "UnavailableError": _CLIENT,
    "evaluate": "cerberank_training.evaluation.evaluate_ranker",
    "train": "cerberank.training",
}
"""The module of each public name; it is imported when the name is first used."""


def __getattr__(name: str) -> Any:
    """Import a public name. Raises AttributeError for other names, ModuleNotFoundError if an extra is missing."""
    if name not in _MODULES:
        raise AttributeError(f"module 'cerberank' has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), _NAMES.get(name, name))
    except ModuleNotFoundError as error:
        from cerberank_models.output import installed_by  # noqa: PLC0415 - imports of this module are lazy

        message = f"cerberank.{name} needs {error.name}; {installed_by('training')}"
        raise ModuleNotFoundError(message, name=error.name) from error


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__

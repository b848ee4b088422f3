"""The command `cerberank store mlflow`, which copies versions and labels between a store and MLflow's registry."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException

from cerberank_models.checkpoint.folder import MANIFEST, Checkpoint, read_checkpoint
from cerberank_models.checkpoint.store.contract import Label, NotInStoreError, Reference, Store, StoreError, check_model
from cerberank_models.checkpoint.store.open import open_store
from cerberank_models.commands.store import Address, moved
from cerberank_models.output import UsageError, note, say

MODEL_TAG, VERSION_TAG = "cerberank.model", "cerberank.version"
"""The tags of a registered version, for the model name and the version of its checkpoint."""
ARTIFACTS = "checkpoint"


def mlflow(
    direction: Literal["to-store", "to-registry"],
    model: str,
    store: Address,
    /,
    *,
    registry: str | None = None,
    alias: tuple[str, ...] = (),
    experiment: str = "cerberank",
) -> None:
    """Copy a model's versions and labels between a store and MLflow's model registry.

    Registered versions hold the checkpoint folder as artifacts, and aliases correspond to labels. Versions that are
    there already are not copied again. Labels and aliases are set, and never removed.

    Args:
        direction: Destination of the copy.
        model: Name of the model in the store and of the registered model.
        store: Store.
        registry: Registry address, such as http://mlflow:5000 or sqlite:///mlflow.db (default: MLFLOW_TRACKING_URI).
        alias: ALIAS=LABEL where an alias differs from its label, such as champion=stable; repeat it for each label.
        experiment: Name of the MLflow experiment whose runs hold the artifacts.
    """
    aliases: dict[Label, str] = {label: label for label in get_args(Label)} | {
        label: name for name, label in map(_alias, alias)
    }
    check_model(model)
    opened = open_store(store)
    client = MlflowClient(registry, registry)
    try:
        if direction == "to-store":
            lines = to_store(client, model, opened, aliases)
        else:
            lines = to_registry(opened, model, client, aliases, experiment=experiment)
        copied = False
        for line in lines:
            copied = True
            say(line)
    except MlflowException as error:
        raise StoreError(str(error).strip().partition("\n")[0]) from error
    if not copied:
        note("store and registry have the same versions and labels; nothing was copied")


def _alias(text: str) -> tuple[str, Label]:
    alias, _, given = text.partition("=")
    label = next((label for label in get_args(Label) if label == given), None)
    if not alias or label is None:
        raise UsageError(f"--alias {text!r} is not ALIAS=LABEL, a label is one of {', '.join(get_args(Label))}")
    return alias, label


def to_store(registry: Any, model: str, store: Store, aliases: Mapping[Label, str]) -> Iterator[str]:
    """Push the checkpoint of every registered version that the store lacks, then move the labels.

    Yields a line for each change. Raises ValueError for a version whose checkpoint has another name.
    """
    held: dict[str, str] = {}
    for registered in _versions(registry, model):
        number, version = str(registered.version), registered.tags.get(VERSION_TAG)
        if version is None or version not in store.versions(model):
            with tempfile.TemporaryDirectory() as scratch:
                checkpoint = _downloaded(registry, model, number, Path(scratch))
                if checkpoint is None:
                    yield f"{model} version {number} of the registry holds no checkpoint, and was left out"
                    continue
                if checkpoint.config.name != model:
                    raise ValueError(
                        f"version {number} of the registered model {model} is a checkpoint of {checkpoint.config.name}"
                    )
                version = store.push(checkpoint).version
                yield f"{model}@{version} is in the store: version {number} of the registry"
        held[number] = version
    given = {alias: str(number) for alias, number in registry.get_registered_model(model).aliases.items()}
    for label, alias in aliases.items():
        target = held.get(given.get(alias, ""))
        if target is not None and store.labels(model).get(label) != target:
            yield moved(model, label, store.move_label(model, label, target), target)


def to_registry(
    store: Store, model: str, registry: Any, aliases: Mapping[Label, str], *, experiment: str
) -> Iterator[str]:
    """Register every version of the store that the registry lacks, then move the aliases to the labels' versions.

    Yields a line for each change. Raises NotInStoreError for a model that the store does not have.
    """
    versions = store.versions(model)
    if not versions:
        raise NotInStoreError(f"the store has no model {model!r}")
    if not registry.search_registered_models(f"name='{model}'"):
        registry.create_registered_model(model)
    numbers = {
        each.tags[VERSION_TAG]: str(each.version) for each in _versions(registry, model) if VERSION_TAG in each.tags
    }
    for version in versions:
        if version not in numbers:
            numbers[version] = _register(store, Reference(model, version), registry, experiment)
            yield f"{model}@{version} is version {numbers[version]} of the registry"
    present = {alias: str(number) for alias, number in registry.get_registered_model(model).aliases.items()}
    for label, version in store.labels(model).items():
        alias = aliases[label]
        if present.get(alias) != numbers[version]:
            registry.set_registered_model_alias(model, alias, numbers[version])
            yield f"{alias} of {model} is version {numbers[version]} of the registry, {version}"


def _versions(registry: Any, model: str) -> list[Any]:
    """The registered versions from all pages of results, the oldest first."""
    found, token = [], None
    while True:
        page = registry.search_model_versions(f"name='{model}'", page_token=token)
        found += page
        token = page.token
        if not token:
            return sorted(found, key=lambda each: int(each.version))


def _downloaded(registry: Any, model: str, number: str, scratch: Path) -> Checkpoint | None:
    """The verified checkpoint in a registered version's artifacts, or in the only folder of these; None if none."""
    uri = registry.get_model_version_download_uri(model, number)
    folder = Path(download_artifacts(artifact_uri=uri, dst_path=str(scratch), tracking_uri=registry.tracking_uri))
    holds = [path.parent for path in (folder / MANIFEST, *sorted(folder.glob(f"*/{MANIFEST}"))) if path.is_file()]
    return read_checkpoint(holds[0]) if holds else None


def _register(store: Store, reference: Reference, registry: Any, experiment: str) -> str:
    """Log a version's folder as artifacts of a new run, and register it; returns the number in the registry."""
    known = registry.get_experiment_by_name(experiment)
    place = known.experiment_id if known else registry.create_experiment(experiment)
    tags = {MODEL_TAG: reference.model, VERSION_TAG: reference.version}
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = store.pull(reference, Path(scratch) / ARTIFACTS)
        run = registry.create_run(place, tags=tags, run_name=f"{reference.model}@{reference.version}").info
        registry.log_artifacts(run.run_id, str(checkpoint.path), ARTIFACTS)
        registry.set_terminated(run.run_id)
    made = registry.create_model_version(
        reference.model,
        f"{run.artifact_uri}/{ARTIFACTS}",
        run.run_id,
        tags=tags,
        description=checkpoint.manifest.source,
    )
    return str(made.version)

"""Writes the checkpoint folder atomically, and verifies every file when it reads one.

    config.json  tokenizer.json  README.md  golden.jsonl  [model.safetensors]
    onnx/<precision>/stage-<i>.onnx[.data]  [first-stage/...]  [calibration.json]  [tune.json, ...]  manifest.json

Files in brackets are optional. Further files, such as the curves of `train tune`, are hashed and verified like the
others, but not read. The service ignores a folder without a valid manifest. Pickle is never used.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import BytesIO
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TypeVar

from pydantic import ValidationError
from tokenizers import Tokenizer

from cerberank_models import calibration
from cerberank_models.calibration import Calibration
from cerberank_models.checkpoint.atomic import appearing_folder
from cerberank_models.checkpoint.errors import (
    ChangedFileError,
    CheckpointError,
    MissingFileError,
    SurplusFileError,
    listing,
)
from cerberank_models.checkpoint.external_data import external_files
from cerberank_models.checkpoint.first_stage_files import encoder_precisions, verify_first_stage
from cerberank_models.checkpoint.manifest import (
    MANIFEST,
    MOST_FILES,
    GoldenCandidate,
    GoldenQuestion,
    Manifest,
    is_path_within,
)
from cerberank_models.checkpoint.model_card import with_languages, without_section
from cerberank_models.checkpoint.regular import (
    SMALL,
    NotRegularError,
    copy_hashed,
    file_digest,
    open_regular,
    read_regular,
    too_large,
)
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import PairEncoder
from cerberank_models.tokens import check_embeddings
from cerberank_models.transformer import Frozen

__all__ = [
    "MANIFEST",
    "ChangedFileError",
    "Checkpoint",
    "CheckpointError",
    "GoldenCandidate",
    "GoldenQuestion",
    "Manifest",
    "MissingFileError",
    "SurplusFileError",
    "copy_checkpoint",
    "read_checkpoint",
    "write_checkpoint",
]

REQUIRED = ("config.json", "tokenizer.json", "README.md", "golden.jsonl")
DATA = ".data"
"""The suffix, after a graph's name, of the file that holds the graph's tensors if they take 2 GB."""
LARGEST = {"config.json": SMALL, calibration.FILE: SMALL, "golden.jsonl": 4 << 20, "tokenizer.json": 64 << 20}
"""The largest sizes in bytes of files that are read as a whole. A vocabulary of 250,000 tokens takes 33 MB, and some 13
times that in memory."""
MOST_GOLDEN = 1000
"""The most golden questions; `export` and imports write three."""
MOST_ENTRIES = 2 * MOST_FILES
"""The most files and folders in a checkpoint's folder that are looked at."""
MOST_PROBLEMS = 5
"""The most problems of a malformed file that a message states."""
ModelT = TypeVar("ModelT", bound=Frozen)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A verified checkpoint folder. If its first stage is the only stage, it has no other weights or graphs."""

    path: Path
    config: RankerConfig
    manifest: Manifest
    golden: tuple[GoldenQuestion, ...]
    calibration: Calibration | None = None
    """The content of `calibration.json`; None for a checkpoint that was not calibrated."""
    outdated_calibration: bool = False
    """True if `calibration.json` is of a format before `calibration.FORMAT`, and is therefore not used."""

    def with_unanswered(self, share: float) -> Checkpoint:
        """The checkpoint with the probabilities of `Calibration.with_unanswered`; as it is if it is not calibrated."""
        return self if self.calibration is None else replace(self, calibration=self.calibration.with_unanswered(share))

    @property
    def weights(self) -> Path | None:
        """The path of `model.safetensors`; None for a folder that has only ONNX graphs."""
        return self.path / "model.safetensors" if "model.safetensors" in self.manifest.files else None

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions of the ONNX graphs of the stages, or of the first stage if it is the only one, sorted."""
        return _precisions(self.manifest) if self.config.reads_pairs else encoder_precisions(self.manifest.files)

    def stage_graphs(self, precision: str) -> tuple[Path, ...]:
        """The graph of each stage, in order. Raises CheckpointError if there are no graphs in this precision."""
        if precision not in self.precisions:
            have = ", ".join(self.precisions) or "none"
            command = f"cerberank export {self.path if self.weights else 'FOLDER'} OUT --forms {precision}"
            lacks = "" if self.weights else ", from a FOLDER with model.safetensors"
            makes = f"`{command}` makes them{lacks}"
            if self.config.encoding.prompt is not None:
                makes = "A decoder is run by torch: CERBERANK_BACKEND=torch, or --backend torch"
            if self.config.transformer.family == "opaque":
                makes = "An opaque network gets no others after its import: serve it in one that it has"
            raise CheckpointError(f"{self.path} has no ONNX graphs in {precision!r}; it has: {have}. {makes}")
        return tuple(self.path / _graph(precision, stage) for stage in range(len(self.config.stages)))

    def encoder(self, tokenizer: Tokenizer | None = None) -> PairEncoder:
        """A new encoder. `tokenizer` may be shared with another encoder of the same `tokenizer.json`.

        Raises CheckpointError if `tokenizer.json` is not a tokenizer, or does not fit this network.
        """
        path, transformer = self.path / "tokenizer.json", self.config.transformer
        try:
            encoder = PairEncoder(
                tokenizer or Tokenizer.from_file(str(path)),
                family=transformer.family,
                config=self.config.encoding,
                type_vocab_size=transformer.type_vocab_size,
                tokenizer_digest=self.manifest.files.get("tokenizer.json"),
            )
            check_embeddings(encoder.tokenizer, transformer.vocab_size)
        except Exception as error:  # tokenizers raises plain `Exception`
            raise CheckpointError(f"{path} cannot be used: {error}") from error
        return encoder


def read_checkpoint(path: Path, *, hashed: bool = True, verified: bool = False) -> Checkpoint:
    """Verify every file of the folder `path` against its manifest, then read it.

    Without `hashed` no file is hashed, for a folder that is pushed: `CheckpointStore.push` hashes what it writes. With
    `verified`, for a copy that another process has just verified, no graph is parsed either.
    Raises MissingFileError, SurplusFileError or ChangedFileError, or their base CheckpointError for a malformed file.
    """
    manifest = _parse(Manifest, path / MANIFEST, _manifest_content(path))
    if not verified:
        _verify_names(path, manifest)
    if hashed and not verified:
        for name in manifest.files:
            check_digest(path / name, file_digest(path / name), manifest.files[name])
    return _read(path, manifest, looked_into=verified)


def _read(path: Path, manifest: Manifest, *, looked_into: bool) -> Checkpoint:
    """Read a folder whose files were compared with the manifest. Graphs are checked unless `looked_into`."""
    config = _parse(RankerConfig, path / "config.json", (path / "config.json").read_bytes())
    _verify_graphs(path, manifest, config)
    verify_first_stage(path, manifest.files, config.first_stage)
    if not looked_into:
        _verify_external_data(path, manifest)
    lines = [line for line in (path / "golden.jsonl").read_bytes().splitlines() if line.strip()]
    if len(lines) > MOST_GOLDEN:
        raise CheckpointError(f"{path / 'golden.jsonl'} holds {len(lines)} questions, more than {MOST_GOLDEN}")
    golden = tuple(_parse(GoldenQuestion, path / "golden.jsonl", line) for line in lines)
    if not golden:
        raise CheckpointError(f"{path / 'golden.jsonl'} holds no question, so nothing can be checked")
    read, outdated = _calibration(path, manifest, config)
    return Checkpoint(
        path=path, config=config, manifest=manifest, golden=golden, calibration=read, outdated_calibration=outdated
    )


def _calibration(path: Path, manifest: Manifest, config: RankerConfig) -> tuple[Calibration | None, bool]:
    """The content of `calibration.json`, or None, and True if that is because its format is outdated.

    Raises CheckpointError if it does not fit the stages.
    """
    if calibration.FILE not in manifest.files:
        return None, False
    file = path / calibration.FILE
    content = file.read_bytes()
    if _parse(calibration.FileFormat, file, content).format < calibration.FORMAT:
        return None, True
    read = _parse(Calibration, file, content)
    if len(read.stages) != config.scored_stages:
        count = f"curves of {len(read.stages)} stages"
        raise CheckpointError(f"{file} has {count}, config.json has {config.scored_stages} stages")
    return read, False


def write_checkpoint(
    path: Path,
    *,
    config: RankerConfig,
    tokenizer: bytes,
    card: str,
    version: str,
    source: str,
    files: Mapping[str, Path | bytes],
    golden: Sequence[GoldenQuestion],
    metrics: Mapping[str, float] | None = None,
) -> Checkpoint:
    """Write a hidden folder beside `path`, verify it, then rename it to `path`.

    `files` are the weights, graphs and further files, by their paths within the folder. The languages that `config`
    states are added to the card. The card's section on calibration is removed if `files` holds no calibration. Raises
    FileExistsError if `path` exists, and CheckpointError if the result would not be a valid checkpoint; in both cases
    nothing is left behind.
    """
    if wrong := [name for name in files if not is_path_within(name) or name in (*REQUIRED, MANIFEST)]:
        raise CheckpointError(f"{listing(wrong)}: not a name for a further file within the checkpoint")
    card = card if calibration.FILE in files else without_section(card, calibration.SECTION)
    with appearing_folder(path) as partial:
        content: dict[str, Path | bytes] = {
            "config.json": config.model_dump_json(indent=2).encode() + b"\n",
            "tokenizer.json": tokenizer,
            "README.md": with_languages(card, config.languages).encode(),
            "golden.jsonl": b"".join(line.model_dump_json().encode() + b"\n" for line in golden),
            **files,
        }
        manifest = Manifest(
            version=version,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            source=source,
            metrics=dict(metrics or {}),
            files={name: _write(partial / name, value) for name, value in sorted(content.items())},
        )
        written = _finished(partial, manifest, manifest.model_dump_json(indent=2).encode() + b"\n")
    return replace(written, path=path)


def copy_checkpoint(source: Path, path: Path) -> Checkpoint:
    """Copy the checkpoint `source` to a hidden folder, the manifest last, verify it, then rename it to `path`.

    Each file is read once, and hashed while it is written, so that the hashes are those of the copied bytes. Raises
    FileExistsError if `path` exists, and CheckpointError if `source` or the copy is not a valid checkpoint; in both
    cases nothing is left behind.
    """
    content = _manifest_content(source)
    manifest = _parse(Manifest, source / MANIFEST, content)
    _verify_names(source, manifest)
    with appearing_folder(path) as partial:
        for name in sorted(manifest.files):
            check_digest(source / name, _write(partial / name, source / name), manifest.files[name])
        copied = _finished(partial, manifest, content)
    return replace(copied, path=path)


def _finished(partial: Path, manifest: Manifest, content: bytes) -> Checkpoint:
    """Write the manifest `content`, and check everything but the hashes, which were computed while writing."""
    _write(partial / MANIFEST, content)
    _verify_names(partial, manifest)
    return _read(partial, manifest, looked_into=False)


def _manifest_content(path: Path) -> bytes:
    try:
        return read_regular(path / MANIFEST, SMALL)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(
            f"{path} has no {MANIFEST}: it is not a checkpoint, or its copy was not finished"
        ) from None
    except NotRegularError as error:
        raise CheckpointError(str(error)) from error


def _verify_names(path: Path, manifest: Manifest) -> None:
    """Raise CheckpointError unless the folder holds exactly the files that its manifest names."""
    if missing := [name for name in REQUIRED if name not in manifest.files]:
        raise CheckpointError(f"{path / MANIFEST} lacks {', '.join(missing)}")
    entries = list(islice(path.rglob("*"), MOST_ENTRIES + 1))
    if len(entries) > MOST_ENTRIES:
        raise SurplusFileError(f"{path} holds more than {MOST_ENTRIES} files and folders")
    items = {item.relative_to(path).as_posix(): item for item in entries if _is_entry(item)}
    if links := [name for name, item in items.items() if item.is_symlink()]:
        raise CheckpointError(f"{path} holds symbolic links, which are not followed: {listing(links)}")
    if special := [name for name, item in items.items() if not item.is_file()]:
        raise CheckpointError(f"{path} holds what is not a regular file: {listing(special)}")
    for name, item in items.items():
        if (most := LARGEST.get(item.name)) is not None and item.stat().st_size > most:
            raise CheckpointError(str(too_large(path / name, most)))
    if absent := set(manifest.files) - set(items):
        raise MissingFileError(f"{path} lacks {listing(absent)}: its copy was not finished")
    if surplus := set(items) - set(manifest.files) - {MANIFEST}:
        raise SurplusFileError(f"{path} holds files that its manifest does not name: {listing(surplus)}")


def check_digest(path: Path, digest: str, stated: str) -> None:
    """Raise ChangedFileError unless the `digest` of what was read from `path` is the `stated` one."""
    if digest != stated:
        raise ChangedFileError(f"{path} does not have the SHA-256 that the manifest states")


def _is_entry(item: Path) -> bool:
    """True if `item` is a file or a link, also a link to a folder; False for a folder."""
    return item.is_symlink() or not item.is_dir()


def _verify_graphs(path: Path, manifest: Manifest, config: RankerConfig) -> None:
    precisions = _precisions(manifest)
    if not config.reads_pairs:
        if own := [name for name in manifest.files if name == "model.safetensors" or name.startswith("onnx/")]:
            raise CheckpointError(f"{path} has {listing(own)}, but its config.json has no stage of pairs")
        return
    if not precisions and "model.safetensors" not in manifest.files:
        raise CheckpointError(f"{path} has neither model.safetensors nor ONNX graphs: there is nothing to run")
    for precision in precisions:
        wanted = {_graph(precision, stage) for stage in range(len(config.stages))}
        got = {name for name in manifest.files if name.startswith(f"onnx/{precision}/")}
        if wanted != got - {name + DATA for name in wanted}:
            raise CheckpointError(
                f"{path} needs {listing(wanted)} for its {len(wanted)} stages, it has {listing(got) or 'none'}"
            )


def _verify_external_data(path: Path, manifest: Manifest) -> None:
    """Raise CheckpointError if a graph names another file than its own `.data` file, because runtimes may read it."""
    for name in (name for name in manifest.files if name.endswith(".onnx")):
        graph = path / name
        try:
            with open_regular(graph) as file:
                files = external_files(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError as error:  # GraphError, or an empty file
            raise CheckpointError(f"{graph} is not an ONNX graph: {error}") from error
        own = {graph.name + DATA} if name + DATA in manifest.files else set()
        if not files <= own:
            raise CheckpointError(
                f"{graph} has tensors in other files (external data): it must hold all of its own, or have them in "
                f"{graph.name}{DATA} beside it"
            )


def _precisions(manifest: Manifest) -> tuple[str, ...]:
    return tuple(sorted({PurePosixPath(name).parts[1] for name in manifest.files if name.startswith("onnx/")}))


def _graph(precision: str, stage: int) -> str:
    return f"onnx/{precision}/stage-{stage}.onnx"


def _parse(model: type[ModelT], path: Path, content: bytes) -> ModelT:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, line['loc'])) or 'content'}: {line['msg']}" for line in error.errors()]
        more = f"; and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
        raise CheckpointError(f"{path}: {'; '.join(problems[:MOST_PROBLEMS])}{more}") from error


def _write(target: Path, value: Path | bytes) -> str:
    """Write one file and flush it to the disk; returns the SHA-256 of the written bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(value) if isinstance(value, Path) else BytesIO(value) as source, target.open("wb") as file:
        digest = copy_hashed(source, file)
        file.flush()
        os.fsync(file.fileno())
    return digest

"""`cerberank export --hugging-face`: a head of a checkpoint as a folder that transformers loads, and on the hub."""

from __future__ import annotations

from pathlib import Path

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.export.to_hugging_face.folder import export_hugging_face
from cerberank_models.export.to_hugging_face.hub import check_repository, push_folder
from cerberank_models.output import note


def write_hugging_face(
    checkpoint: Path, out: Path, *, head: int | None, repository: str | None, private: bool = False
) -> None:
    """Write the folder `out`, and upload it to a repository on the hub. Raises ValueError and the export's errors."""
    if repository is not None:
        check_repository(repository)
    source = read_checkpoint(checkpoint)
    export_hugging_face(source, out, head=head, repository=repository)
    encoding = source.config.encoding
    if encoding.truncation == "last_first":
        note(
            f"cerberank export: pairs of more than {encoding.max_length} tokens, or questions of more than "
            f"{encoding.question_length}, are cut in another way by transformers, which cuts the longest text first: "
            "their scores differ"
        )
    note(
        f"cerberank export: {out} loads with AutoModelForSequenceClassification and CrossEncoder, and scores as "
        f"{source.path}"
    )
    if repository is not None:
        note(f"cerberank export: uploaded: {push_folder(out, repository, private=private)}")

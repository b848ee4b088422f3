"""The model card of an exported head: the checkpoint's own, with what the hub and its libraries read."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from cerberank_models.checkpoint.folder import Checkpoint

TAGS = ("cross-encoder", "text-ranking", "reranker", "cerberank")
SECTION = """
## As a Hugging Face model

`{model_class}` with one logit, written by `cerberank export --hugging-face` from {part} of the checkpoint
`{name}@{version}` ({architecture}). {left}The sigmoid of the logit is the score that Cerberank
gives, and sentence-transformers computes it:

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("{place}")
scores = model.predict([("how tall is it?", "It is 330 metres tall."), ("how tall is it?", "It is in Paris.")])
```

Pairs have at most {length} tokens.{cut} Figures above that were measured with dropping,
with other heads or in another precision are not this model's.
"""
CUT = """ Longer ones lose the ends of their longest segments, as Hugging Face's tokenizers cut; the checkpoint
keeps {question} tokens of the question and cuts the candidate, so that scores of longer pairs differ."""


def hugging_face_card(checkpoint: Checkpoint, *, head: int, model_class: str, place: str) -> str:
    """The card of `head` (from 1) of the checkpoint, which becomes a `model_class` that is loaded from `place`.

    Terms and other metadata of the checkpoint's card are kept.
    """
    config, own = checkpoint.config, (checkpoint.path / "README.md").read_text(encoding="utf-8")
    given = ModelCard(own) if own.startswith("---\n") else None
    data = given.data if given else ModelCardData()
    data["library_name"], data["pipeline_tag"] = "sentence-transformers", "text-ranking"
    data["tags"] = list(dict.fromkeys([*(data.get("tags") or []), *TAGS]))
    heads, encoding = config.architecture.heads, config.encoding
    rest = [f"the other {'head' if heads == 2 else 'heads'}"] if heads > 1 else []
    rest += ["the exits"] if config.exits else []
    rest += ["the first stage"] if config.first_stage else []
    left = " and ".join(rest)
    section = SECTION.format(
        model_class=model_class,
        part=f"head {head} of {heads}" if heads > 1 else "the head",
        name=config.name,
        version=checkpoint.manifest.version,
        architecture=config.architecture,
        left=f"{left[:1].upper()}{left[1:]} are left out. " if left else "",
        place=place,
        length=encoding.max_length,
        cut=CUT.format(question=encoding.question_length) if encoding.truncation == "last_first" else "",
    )
    body = (given.text if given else own).strip("\n")
    return f"---\n{data.to_yaml()}\n---\n\n{body}\n{section}"


def place_of(out: Path, repository: str | None) -> str:
    """What users load the model by: its repository on the hub, or else the folder's name."""
    return repository or out.name

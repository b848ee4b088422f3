"""Cards of exported heads."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCard
from tests.tiny import random_ranker

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.manifest import Manifest
from cerberank_models.export.to_hugging_face.card import hugging_face_card


def test_terms_of_a_card_are_kept(tmp_path: Path) -> None:
    """Metadata of the checkpoint's card stay, with what the hub needs beside them; no other card is needed."""
    config = random_ranker(heads=1, exits=()).config
    manifest = Manifest(version="1", created="2026-11-23T00:00:00Z", source="", files={})
    for text, licence in (("# r\n\nText.\n", None), ("---\nlicense: mit\ntags: [mine]\n---\n# r\n\nText.\n", "mit")):
        (tmp_path / "README.md").write_text(text)
        read = Checkpoint(path=tmp_path, config=config, manifest=manifest, golden=())
        card = ModelCard(hugging_face_card(read, head=1, model_class="BertForSequenceClassification", place="team/r"))
        data = card.data.to_dict()
        assert (data.get("license"), data["pipeline_tag"]) == (licence, "text-ranking")
        assert "cross-encoder" in data["tags"]
        assert ("mine" in data["tags"]) == (licence is not None)
        assert 'CrossEncoder("team/r")' in card.text
        assert card.text.lstrip().startswith("# r\n\nText.\n")

"""A short form of `make fuzz`: the real process against its own OpenAPI document."""

from __future__ import annotations

from pathlib import Path


def test_both_ports_keep_to_their_document(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Some hundred valid and invalid cases are answered as the OpenAPI documents describe."""
    from tools.fuzz import TOKEN, fuzz, serving  # which imports schemathesis, in a second

    with serving(tiny_checkpoint, tmp_path) as (service, names):
        public = fuzz(service.url, cases=300, names=names)
        admin = fuzz(service.admin_url or "", cases=100, names=names, token=TOKEN)
    assert public.total() >= 300
    assert {200, 404, 422} <= set(public)
    assert admin.total() >= 100
    assert {200, 404, 422} <= set(admin)

"""The page of supported models has every model; two of its rows are measured anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.supported_models import BEGIN, END, FORMS, Form, Found, measure

PAGE = (Path(__file__).parents[1] / "docs" / "supported-models.md").read_text()


def test_the_page_has_all_models() -> None:
    """The 23 of the table, one a row."""
    rows = PAGE.partition(BEGIN)[2].partition(END)[0].splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [
        model.name for form in FORMS for model in form.models
    ]
    assert len(rows) == 23


@pytest.mark.parametrize(
    "form", [form for form in FORMS if "MiniLM" in form.models[0].name or "jina" in form.models[0].name]
)
def test_a_row_is_what_an_import_gives(form: Form) -> None:
    """A family with weights alone, and a refusal."""
    found = measure(form, precisions=())
    if isinstance(found, Found):
        assert (found.family, list(found.differences)) == ("bert", ["torch fp32"])
        assert max(found.differences.values()) <= 1e-5
    else:
        assert "needs Python code of its repository" in found
        assert found in PAGE

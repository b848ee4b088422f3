from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from cerberank_service.errors import Kind, ServiceError, from_validation


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str


class Order(BaseModel):
    items: list[Item]
    count: int = 0


def validation_error(body: str) -> ServiceError:
    with pytest.raises(ValidationError) as caught:
        Order.model_validate_json(body)
    return from_validation(caught.value)


def test_a_wrong_field_is_named_with_its_place() -> None:
    """422 that points at the field in the way a client writes it."""
    error = validation_error('{"items": [{"text": "a"}, {"txt": "b"}]}')
    assert error.kind is Kind.INVALID
    assert error.message == "items[1].text: is required; items[1].txt: is not a field of this request; is text meant?"


def test_many_problems_are_counted_not_listed() -> None:
    """A message does not grow with the request."""
    error = validation_error('{"items": [' + ",".join(["{}"] * 500) + "]}")
    assert error.message.endswith("; and 497 more")
    assert len(error.message) < 200


def test_a_long_field_name_is_not_echoed_whole() -> None:
    """The length of the message is bounded for a hostile field name."""
    error = validation_error('{"items": [{"text": "a", "' + "x" * 10_000 + '": 1}]}')
    assert len(error.message) < 300


def test_retry_after_is_in_whole_seconds_from_one() -> None:
    """Clients misread fractions and zero."""
    assert ServiceError(Kind.UNAVAILABLE, "", retry_after=7).headers == {"Retry-After": "7"}
    assert ServiceError(Kind.UNAVAILABLE, "", retry_after=0).headers == {"Retry-After": "1"}
    assert ServiceError(Kind.INVALID, "").headers == {}

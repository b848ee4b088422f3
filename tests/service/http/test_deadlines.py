from __future__ import annotations

import pytest

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.deadlines import due, read_header


@pytest.mark.parametrize("value", ["", "soon", "0", "-1", "nan", "inf", "1e999", "1 s"])
def test_a_header_that_is_no_time_is_refused(value: str) -> None:
    """Ignored, it would be a deadline that silently does not hold."""
    with pytest.raises(ServiceError, match="X-Request-Timeout-Ms") as refused:
        read_header(value)
    assert refused.value.kind is Kind.INVALID


def test_the_earlier_of_two_times_counts() -> None:
    """A proxy's patience and the client's wish; neither is a must."""
    assert read_header("1500") == 1500.0
    assert due(100.0, 500.0, read_header("1500")) == 100.5
    assert due(100.0, None, read_header(" 20 ")) == 100.02
    assert due(100.0, None, read_header(None)) is None

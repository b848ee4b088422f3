"""Memory that the code under test holds, without what other parts of the process allocate meanwhile."""

from __future__ import annotations

import tracemalloc


def held_bytes(test_file: str) -> int:
    """The bytes that `cerberank_models` and `test_file` have allocated since `tracemalloc.start()` and still hold.

    Everything else is left out: threads of other tests, and SlipCover, which replaces the code of every module that has
    run often enough, .6 MB in the middle of a test. A call takes a tenth of a second.
    """
    ours = [tracemalloc.Filter(True, place) for place in ("*/cerberank_models/*", test_file)]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)

"""`cerberank serve` that gives a client one second instead of thirty: `python -m tests.e2e.impatient`."""

from __future__ import annotations

import sys

from cerberank_service.limits import Limits
from cerberank_service.serve import main

if __name__ == "__main__":
    sys.exit(main([], Limits(client_seconds=1.0)))

"""`cerberank serve` that gives a client one second instead of thirty: `python -m tests.e2e.impatient`."""

from __future__ import annotations

import sys

from cerberank_service.serve import main
from cerberank_service.settings.limits import Limits

if __name__ == "__main__":
    sys.exit(main([], Limits(client_seconds=1.0)))

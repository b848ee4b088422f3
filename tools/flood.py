"""A client that asks as fast as it can, from another address: `python -m tools.flood URL SECONDS`.

Prints how often each status came.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter

import httpx

CLIENTS = 16
ADDRESS = "127.0.0.2"
BODY = {"question": "how tall is it ?", "candidates": ["330 metres", "in paris"]}


def flood(url: str, seconds: float) -> Counter[int]:
    """Ask with all clients; 0 counts requests without an answer."""
    end, found = time.monotonic() + seconds, Counter[int]()

    def ask() -> None:
        with httpx.Client(transport=httpx.HTTPTransport(local_address=ADDRESS), timeout=30.0) as client:
            while time.monotonic() < end:
                try:
                    found[client.post(f"{url}/v1/rank", json=BODY).status_code] += 1
                except httpx.HTTPError:
                    found[0] += 1

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(flood(sys.argv[1], float(sys.argv[2]))) + "\n")

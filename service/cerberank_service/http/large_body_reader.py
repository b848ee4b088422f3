"""`python -m cerberank_service.http.large_body_reader DESCRIPTOR`: reads large bodies for `large_bodies`.

It gets a `Reader` and a body, gives back what was read, and ends when nobody is left who sends.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

from cerberank_service.http.large_body import read_descriptor
from cerberank_service.memory import keep_spare_memory, return_freed_memory, return_large_arrays
from cerberank_service.ranking.read import Reader


def serve(connection: Connection) -> None:
    """Read bodies until the other end is closed."""
    while True:
        try:
            reader: Reader = connection.recv()
            descriptor = recv_handle(connection)
            try:
                body = read_descriptor(descriptor)
            finally:
                os.close(descriptor)
        except (EOFError, OSError):
            return
        try:
            connection.send(reader(body))
        except OSError:
            return
        except Exception:  # told by the service's log, as any failure is
            connection.send(traceback.format_exc())
        del reader, body
        return_freed_memory()


if __name__ == "__main__":
    for signal_ in (signal.SIGINT, signal.SIGTERM):  # the service's; a terminal or a supervisor sends them to both
        signal.signal(signal_, signal.SIG_IGN)
    return_large_arrays()
    keep_spare_memory()
    serve(Connection(int(sys.argv[1])))

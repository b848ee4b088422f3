"""`python -m cerberank_service.http.large_body_reader DESCRIPTOR`: the process that parses bodies for `large_bodies`.

It receives a `Reader` and the descriptor of a body, sends the parsed body back, and ends when the connection is closed.
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
    """Parse bodies until the other end is closed."""
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
        except Exception:  # the service logs it
            connection.send(traceback.format_exc())
        del reader, body
        return_freed_memory()


if __name__ == "__main__":
    for signal_ in (signal.SIGINT, signal.SIGTERM):  # a terminal or a supervisor sends them to this process as well
        signal.signal(signal_, signal.SIG_IGN)
    return_large_arrays()
    keep_spare_memory()
    serve(Connection(int(sys.argv[1])))

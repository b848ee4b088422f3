"""One request's way: bytes to a call, the call to encoded pairs, these to a ranking, in workers and the engine."""

"""The ranking pipeline: read a body into a call, encode its pairs, rank them in the engine, render the answer."""

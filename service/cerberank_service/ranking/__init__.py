"""The ranking pipeline: reads a body into a call, encodes its pairs, has the engine rank them, makes the answer."""

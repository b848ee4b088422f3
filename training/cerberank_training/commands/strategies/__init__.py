"""`cerberank train strategies`: the tables that compare a paper's systems, each run a process of its own."""

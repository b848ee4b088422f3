"""The first stage (TRMD): a bi-encoder that ranks texts by vectors, which can be computed before a question arrives."""

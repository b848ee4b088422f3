"""The HTTP service: questions and candidates in, an order out."""

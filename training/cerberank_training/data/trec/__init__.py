"""Reads TREC collections: queries, documents, judgements with grades, and runs."""

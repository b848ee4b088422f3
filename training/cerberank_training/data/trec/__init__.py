"""Reads TREC collections: queries, documents, judgements with grades, runs, and folds."""

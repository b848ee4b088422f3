"""The benchmarks of `python -m cerberank_benchmarks`, one per file: settings and a folder in, a report out."""

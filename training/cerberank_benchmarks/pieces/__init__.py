"""The benchmarks of `python -m cerberank_benchmarks`, one per file; each takes settings and a folder."""

"""The benchmarks of `python -m cerberank_benchmarks`: workloads, peers with the same weights, tables and plots."""

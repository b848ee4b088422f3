"""The benchmarks of `python -m cerberank_benchmarks`, with their workloads, peers with equal weights, and reports."""

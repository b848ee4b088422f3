"""The benchmarks of `cerberank bench`: workloads, peers with the same weights, tables and plots."""

"""The GPU benchmarks: measure one GPU in a single run of limited time, without data sets or a network."""

"""What `cerberank bench` runs: workloads, peers with the same weights, tables and plots."""

"""the GPU benchmarks: what one GPU gives, measured in one bounded run without data sets or a network."""

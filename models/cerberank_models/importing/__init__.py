"""Models of other libraries become rankers: configuration and weights, every weight accounted for. Needs torch."""

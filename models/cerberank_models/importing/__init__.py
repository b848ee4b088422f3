"""Models of other libraries become rankers: configuration and weights, every weight accounted for. Needs torch, but for
`source` and `cache`, which the service uses.
"""

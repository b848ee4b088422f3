"""Teachers' scores of pairs, in a cache on disk that students read."""

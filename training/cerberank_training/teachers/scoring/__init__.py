"""The scoring of data sets by teachers; the scores are written into caches."""

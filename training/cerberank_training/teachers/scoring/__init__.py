"""The scoring of data sets by teachers, into score caches."""

"""Teachers score data sets into caches."""

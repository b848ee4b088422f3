"""The life of a training run, which is the same for every job: from the checks, by one loop, to the result."""

"""Several systems on several data sets: means, and paired tests against a baseline with Holm's correction."""

"""Measures that are asked for by the names of ir_measures, such as `AP(rel=2)` and `nDCG@10`."""

"""Computes the vectors of many texts for a store, in one process or on a Ray cluster."""

"""Measures how well a ranker ranks and at what cost: metrics, comparisons, ensembles, drop schedules, reports."""

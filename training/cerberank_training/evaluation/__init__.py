"""How well a ranker ranks and what it costs: metrics, comparisons, ensembles, tuned drop schedules, tables, plots."""

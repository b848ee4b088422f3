"""Who may rank, and how much: API keys with quotas."""

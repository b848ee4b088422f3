"""Access control: API keys with quotas."""

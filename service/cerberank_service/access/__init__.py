"""Who may do what: API keys with quotas on the public port, the operator's port with its token and its client."""

"""The versions in service, from their load to their unload."""

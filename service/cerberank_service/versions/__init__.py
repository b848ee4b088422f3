"""The versions in service: loaded, checked, routed to, unloaded; from one folder or as a store's labels say."""

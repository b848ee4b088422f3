"""The versions in service: loading, routing and unloading them, and following a store and its labels."""

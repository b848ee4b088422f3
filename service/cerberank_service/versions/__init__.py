"""Versions in service: loading, checks, routing and unloading, from one folder or by the labels of a store."""

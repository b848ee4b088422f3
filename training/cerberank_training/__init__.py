"""Trains, evaluates and exports rankers; never imported by the service."""

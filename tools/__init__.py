"""Programs that attack, load, compare and picture a real service; each is run as `python -m tools.NAME`."""

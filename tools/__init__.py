"""Programs for development, most of which test, load or measure a real service; run them as `python -m tools.NAME`."""

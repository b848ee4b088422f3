"""The papers' commands that train one network."""

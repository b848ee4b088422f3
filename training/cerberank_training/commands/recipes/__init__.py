"""Recipes as verbs take them: by name, or from a file."""

"""Prints the settings as the table of docs/settings.md."""

import sys

from cerberank_service.settings.environment import markdown_table

if __name__ == "__main__":
    sys.stdout.write(markdown_table() + "\n")

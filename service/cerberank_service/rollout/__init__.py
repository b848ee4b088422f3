"""Roll-out of versions: label moves, and shadow comparison."""

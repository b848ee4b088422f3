"""Roll-out of versions: label moves by operators and by rules, and shadow comparison."""

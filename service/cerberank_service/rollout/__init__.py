"""Which version gets which questions: labels moved by operators or by rules, and shadow comparison."""

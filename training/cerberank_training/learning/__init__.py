"""What students learn: the pairs of a step, losses, and the strategies that give heads their teachers."""

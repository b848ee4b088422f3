"""How a student learns: batches, losses, strategies, and the resumable loop in one process or several."""

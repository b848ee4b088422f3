"""The training of students: batches, losses, strategies, and the resumable loop in one process or several."""

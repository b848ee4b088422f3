"""The checkpoint folder: written atomically, verified when it is read, revised, copied."""

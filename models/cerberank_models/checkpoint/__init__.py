"""The checkpoint folder: it is written atomically, verified when it is read, and can be revised and copied."""

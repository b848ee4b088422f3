"""What a text ranker (a bi-encoder, or a cross-encoder of long documents) reads: its config, and texts as token ids."""

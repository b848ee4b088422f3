"""Teachers: their fine-tuning by Hugging Face's Trainer, and the caches of their scores on disk."""

"""Teachers: fine-tuned on Hugging Face's Trainer, their scores written to a cache on disk."""

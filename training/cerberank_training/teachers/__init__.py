"""The making of teachers' scores, from the fine-tuning of a model to the cache on disk that students read."""

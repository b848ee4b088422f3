"""Students and fine-tuned teachers: the job of each, with its options, network, batches and losses."""

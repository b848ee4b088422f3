"""Students: the settings, the network, the batches and the losses of what learns from labels and from teachers."""

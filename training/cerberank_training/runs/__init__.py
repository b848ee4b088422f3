"""The record of a training run, from the checks of its inputs to the description of its checkpoint."""

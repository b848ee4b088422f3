"""The data and settings that a training run cannot change, their record, and the model card that is made from it."""

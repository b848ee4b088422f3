"""What a run of training is bound to, the record that says so, and the model card that is made from it."""

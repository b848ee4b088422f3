"""What the service and the training package agree on: encoding, networks, drop rules, checkpoints, backends."""

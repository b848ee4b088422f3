"""The ranker that the service and the training package share: encoding, networks, drop rules, checkpoints, backends."""

__version__ = "0.1.0"

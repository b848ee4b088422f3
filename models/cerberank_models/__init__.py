"""The ranker that the service and the training package share: encoding, networks, drop rules, checkpoints, backends."""

import os

# ONNX Runtime 1.31 sends events about the machine to its maker, and keeps a device id below ~/.cache/Microsoft, unless
# this is set before its library is loaded; `disable_telemetry_events()` comes too late. Whoever wants that sets 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.1.0"

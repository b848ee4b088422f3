"""The library that service and training share: encoding, networks, drop rules, checkpoints, backends."""

import os

# ONNX Runtime 1.31 sends telemetry about the machine to Microsoft, and keeps a device id below ~/.cache/Microsoft,
# unless this variable is set before its library is loaded; calling `disable_telemetry_events()` later is too late.
# Users who want the telemetry set the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.1.0"

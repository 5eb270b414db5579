"""Text to vectors."""

import os

# onnxruntime 1.32 and later keeps a device id in the home folder and sends usage data unless this
# is set before it is loaded, and everything that loads it lies in this folder.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

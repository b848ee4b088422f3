"""The closing lines of a training command: its result, and the commands that come next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path


def closing(checkpoint: Path, *, name: str, figures: str, forms: Sequence[str], train: str, kept: str = "") -> str:
    """The lines for a checkpoint with ONNX graphs in these `forms`; int8 ranges are measured on the data `train`.

    `kept` is a suffix that begins with a semicolon, and says what an extended run has kept of its earlier model.
    """
    folder = shlex.quote(str(checkpoint))
    written = ", ".join(["weights", *(f"ONNX {form}" for form in forms)])
    exported = checkpoint.parent / "exported"
    served = folder if forms else shlex.quote(str(exported))
    backend = "" if forms else " --backend torch"
    steps = [("measure", f"cerberank evaluate --checkpoint {folder}{backend} --data FORMAT:PATH")]
    if not forms:
        steps.append(("export", f"cerberank export {folder} {served} --calibrate {shlex.quote(train)}"))
    steps += [
        ("keep", f"cerberank store push {served} STORE --label stable"),
        ("serve", f"CERBERANK_CHECKPOINT={served} cerberank serve"),
    ]
    lines = [f"{checkpoint}: {name}, {figures}; {written}{kept}"]
    return "\n".join(lines + [f"  {verb + ':':<9}{command}" for verb, command in steps])

"""Other operators for the parts of a layer compute what those of the int8 form compute."""

from __future__ import annotations

import numpy as np

from cerberank_benchmarks.pieces.operators import parts


def test_the_forms_of_a_part_agree() -> None:
    """Products within the error of their bits, attention alike, activations within the error of their formulas."""
    bounds = {"4 bits": 0.2, "8 bits": 0.02, "MatMulIntegerToFloat": 0.02, "FastGelu": 1e-2, "QuickGelu": 5e-2}
    for part in parts(np.random.default_rng(0), 128):
        got = {name: session.run(None, part.inputs)[0].astype(np.float32) for name, session in part.forms.items()}
        wanted = next(iter(got.values())) if part.exact is None else part.exact
        for name, values in got.items():
            bound = next((bound for known, bound in bounds.items() if known in name), 1e-4)
            seen = values[part.inputs["mask"] == 1] if "mask" in part.inputs else values
            exact = wanted[part.inputs["mask"] == 1] if "mask" in part.inputs else wanted
            assert np.sqrt(((seen - exact) ** 2).mean()) <= bound * np.sqrt((exact**2).mean()), (part.name, name)

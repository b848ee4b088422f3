"""Largest distances between results that are equal but for the order in which float32 adds: batches, layouts,
processors.

float32 rounds each addition by at most UNIT of its result. The errors of a sum of K terms are independent of each
other to a good approximation, and come to about sqrt(K) * UNIT of its size (Higham and Mary, 2019); the matrix
products of a forward pass follow one another, each on normalised numbers, so their errors add up as squares. Two
evaluations err independently, hence the factor 2 for the difference of both. Nothing here depends on a processor: one
that adds in blocks of 4, 16 or 32 errs in another order, not by more.

Among the logits of 120 random networks and batches (2,880 of the last stage, against float64, 2026-11-22) the largest
error of one evaluation was 1.5e-5, which is 3.3 times what is computed without MARGIN, the median of the largest of
each batch 0.6 times. What one wrong scale or one swapped candidate does is a hundred times larger.
"""

from __future__ import annotations

from math import sqrt

UNIT = 2.0**-24
"""float32's unit round-off."""
MARGIN = 4
"""For what is rarer than the typical case, and for what a softmax amplifies."""
PRODUCTS = 6
"""Matrix products that follow one another in a layer: queries, attention's two, its output, up, down."""
LAYERS, TERMS = 4, 64
"""The deepest path and the longest sum of the networks in `tiny.py`."""
SPREAD = 2.0
"""Their logits' standard deviation, at most."""


def rounding(products: int, *, size: float = 1.0) -> float:
    """The bound for numbers of about `size` behind so many matrix products, one after the other."""
    return MARGIN * 2 * sqrt(products * TERMS) * UNIT * size


LOGITS = rounding(PRODUCTS * LAYERS, size=SPREAD)
"""The bound of a whole forward pass."""
PROBABILITIES = LOGITS / 4
"""A sigmoid is at most a quarter as steep."""
HIDDEN = rounding(PRODUCTS)
"""Hidden states behind one layer, whose norm has made them numbers of about 1."""
ATTENDED = rounding(2)
"""The part of the size that attention alone mixes, of numbers of about 1."""

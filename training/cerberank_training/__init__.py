"""Trains, evaluates and exports rankers; never imported by the service."""

import os

# oneDNN keeps 1,024 prepared products, one for each shape, with memory of their own. Steps of training differ in their
# numbers of tokens: `distil` took 11 GB after 680 steps, and 6 GB with 128 products kept, at the same speed.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")

"""Train a student, measure it and rank with it, by the Python interface: `python examples/train.py OUT [BASE]`.

It needs the extra `training`. BASE is a hub id or a folder with an encoder of four layers or more. With the bundled
example data it takes about a minute on two cores; the result is far too small to be useful.
"""

import sys
from pathlib import Path

from cerberank import Ranker, Store, evaluate, train

DATA = Path(__file__).resolve().parents[1] / "docs" / "example"
out = Path(sys.argv[1])
base = sys.argv[2] if len(sys.argv) > 2 else "sentence-transformers/all-MiniLM-L6-v2"

trained = train(
    recipe="tiny",
    base=base,
    train=f"jsonl:{DATA / 'train.jsonl'}",
    dev=f"jsonl:{DATA / 'dev.jsonl'}",
    out=out / "run",
    forms=(),  # weights alone, for PyTorch; `cerberank export` makes the forms that a processor serves
    name="example",
)
ranker = Ranker.load(trained.checkpoint, backend="torch")
report = evaluate(ranker, f"jsonl:{DATA / 'dev.jsonl'}", measures="nDCG@10")
print(f"MAP {report.map:.1f}, nDCG@10 {report['nDCG@10']:.1f}, {report.milliseconds:.0f} ms for 100 candidates")
print(ranker.rank("Where is the market?", ["It opens at eight.", "It is beside the harbour."])[0].text)
print(Store(out / "store").push(trained.checkpoint, label="stable"))

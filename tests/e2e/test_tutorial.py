"""docs/tutorial.md, word for word: from a cross-encoder and BEIR data to a served student and back to Hugging Face."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
from tests.e2e.shell import blocks, environment, run_in_shell
from tests.tiny import save_cross_encoder

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import pairs_policy, rank_pairs

LETTERS, NOUNS = "abcde", ("city", "river", "tower", "word", "opera", "mark")
QUESTION, TEXTS = "what city is a ?", ["a is a city", "b is a river", "c is a tower"]


def write_beir(folder: Path) -> None:
    """Each of 30 queries has one relevant document, of 30; every fifth is of dev, every fifth of test."""
    pairs = list(product(LETTERS, NOUNS))
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}", "title": "", "text": f"{a} is a {noun}"} for i, (a, noun) in enumerate(pairs)]
    queries = [{"_id": f"q{i}", "text": f"what {noun} is {a} ?"} for i, (a, noun) in enumerate(pairs)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    splits = {split: ["query-id\tcorpus-id\tscore"] for split in ("train", "dev", "test")}
    for number in range(len(pairs)):
        splits[{3: "dev", 4: "test"}.get(number % 5, "train")].append(f"q{number}\td{number}\t1")
    for split, lines in splits.items():
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def test_every_command_of_the_tutorial(tmp_path: Path) -> None:
    """All shell blocks in one shell, in a folder with a tiny six-layer cross-encoder; only the port differs.

    The service answers with the pushed version, its card says what made it, and what came back to Hugging Face scores
    as the checkpoint.
    """
    shape = {"num_hidden_layers": 6, "max_position_embeddings": 160, "initializer_range": 0.1}  # int8 must be near fp32
    save_cross_encoder("bert", tmp_path / "my-cross-encoder", num_labels=1, **shape)
    write_beir(tmp_path / "my-data")
    output = run_in_shell(blocks("tutorial.md"), tmp_path)
    log = (tmp_path / "errors").read_text()
    assert "starts from my-cross-encoder, a cross-encoder of one logit, whose classifier the heads start from" in log
    answer = json.loads(re.findall(r'^\{.*"results".*\}$', output, re.MULTILINE)[-1])
    assert (answer["model"], answer["version"]) == ("my-ranker", "1-tuned")
    assert len(answer["results"]) == 3

    checkpoint = read_checkpoint(tmp_path / "tuned")
    assert str(checkpoint.config.architecture) == "B5 1H1"
    card = (tmp_path / "tuned" / "README.md").read_text()
    for text in ("# my-ranker", "my-cross-encoder", "beir:my-data", "single", "my own data", "## Drop schedules"):
        assert text in card

    script = blocks("tutorial.md", "python").replace(
        "print(", "print(model.predict([('what city is a ?', t) for t in TEXTS]), "
    )
    script = f"TEXTS = {TEXTS}\nimport numpy\nnumpy.set_printoptions(precision=9)\n{script}"
    ranked = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    ).stdout
    got = np.asarray([float(number) for number in ranked[ranked.index("[") + 1 : ranked.index("]")].split()])
    pairs = checkpoint.encoder().encode(QUESTION, [Candidate(text=text) for text in TEXTS])
    backend = open_backend(checkpoint, kind="torch", precision="fp32")
    wanted = rank_pairs(backend, pairs, pairs_policy(checkpoint.config, 0.0)).scores
    assert np.abs(got - wanted).max() <= 1e-5

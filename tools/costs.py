"""Estimates the cost of the papers' commands on one GPU: `python -m tools.costs` writes the table of docs/papers.md.

Steps, batches, lengths and evaluations are the presets'; operations are counted, the rate of the GPU is assumed. A run
that stops early, because nothing is gained, costs less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from cerberank_benchmarks.gpu.networks import operations
from cerberank_models.config import ArchitectureConfig, ExitConfig, RankerConfig
from cerberank_models.transformer import TransformerConfig
from cerberank_training.commands.presets import read_preset
from cerberank_training.evaluation.report import table
from cerberank_training.students.recipes import RECIPES
from tools.process import ROOT

PAGE, HEADING = ROOT / "docs" / "papers.md", "## Hours and memory on one H200, counted"
RATE = {"fp32": 100e12, "fp16": 200e12, "bf16": 200e12}
"""Assumed operations per second: a fifth of the H200's peak for dense products in TF32 and in 16 bits."""
ROOM = 120e9
"""Bytes of the H200's 141 GB that a training step may use."""
WEIGHT = {"fp32": 16, "fp16": 18, "bf16": 18}
"""Bytes for each weight: the weight, its gradient, Adam's two moments and, in 16 bits, a copy of the weight."""
LAYER = {"fp32": 68.5, "fp16": 39.0, "bf16": 39.0}
"""Bytes that a layer keeps for each token and unit of its width: measured (`tests/test_papers.py`), plus the masks of
dropout."""
MASKED = 0.15
"""Share of tokens that masked language modelling predicts; each needs 8 bytes for each word of the vocabulary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """An encoder, either as a plain model or as a body with three heads."""

    name: str
    layers: int
    width: int
    vocabulary: int = 30_522
    embedding: int | None = None
    family: Literal["bert", "albert"] = "bert"
    body: int | None = None
    """Layers of the body below three heads; None for a plain model."""

    @property
    def config(self) -> RankerConfig:
        """A checkpoint's configuration of these sizes."""
        body = self.layers if self.body is None else self.body
        return RankerConfig(
            name="counted",
            transformer=TransformerConfig(
                family=self.family,
                vocab_size=self.vocabulary,
                hidden_size=self.width,
                layers=self.layers,
                attention_heads=max(1, self.width // 64),
                intermediate_size=4 * self.width,
                max_positions=512,
                embedding_size=self.embedding or self.width,
            ),
            architecture=ArchitectureConfig(
                body_layers=body, heads=0 if self.body is None else 3, head_layers=max(1, self.layers - body)
            ),
            exits=(ExitConfig(after=self.layers),) if self.body is None else (),
        )

    @property
    def weights(self) -> float:
        """Number of weights in matrices: those of the embeddings, the layers and the heads' layers."""
        own = 1 if self.family == "albert" else self.run
        embedding = self.embedding or self.width
        return (self.vocabulary + 512) * embedding + own * 12 * self.width**2

    @property
    def run(self) -> int:
        """Number of layers that a token goes through, including the layers of all heads."""
        return self.layers if self.body is None else self.body + 3 * (self.layers - self.body)

    def forward(self, tokens: float) -> float:
        """Operations for a pair of this many tokens."""
        return operations(self.config, 1, tokens)


ALBERT_XXLARGE = Network(
    name="ALBERT-xxlarge", layers=12, width=4096, vocabulary=30_000, embedding=128, family="albert"
)
LARGE = Network(name="RoBERTa- or ELECTRA-large", layers=24, width=1024, vocabulary=50_265)
BASE = Network(name="BERT-, RoBERTa- or ELECTRA-base", layers=12, width=768, vocabulary=50_265)
GENERATOR = Network(name="ELECTRA's generator", layers=12, width=256)
EXITS = [Network(name="", layers=layers, width=768) for layers in (4, 6, 8, 10, 12)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """A training set and its dev set: numbers of pairs, and the mean `tokens` of a pair."""

    train: int
    dev: int
    tokens: float


ASNQ = Data(train=23_662_238, dev=539_210, tokens=67.5)
"""Sizes from table 1 of CERBERUS and footnote 9 of CT."""
WIKIQA = Data(train=8_672, dev=2_733, tokens=38.9)
"""Training questions with an answer, and all dev questions; tokens were counted with BERT's tokenizer."""
WHOLE_WIKIQA = Data(train=20_360, dev=2_733, tokens=38.9)
ROBUST04 = Data(train=0, dev=50 * 100, tokens=0)
"""A fold of 50 questions; 100 documents for each question are assumed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """The cost of one command, a row of the table."""

    command: str
    network: str
    training: float
    dev: float
    precision: str
    runs: int = 1
    fixed: float = 0.0
    """Bytes that do not depend on the batch."""
    step: float = 0.0
    """Bytes for all tokens of a step."""

    @property
    def cells(self) -> list[str]:
        """The cells of the row."""
        rate = 3600 * RATE[self.precision] / self.runs
        batches = ceil(self.step / (ROOM - self.fixed)) if self.step else 1
        hours = [f"{_short(each / rate)}" for each in (self.training, self.dev)]
        memory = f"{ceil((self.fixed + self.step / batches) / 1e9)}"
        work = f"{_short(self.runs * (self.training + self.dev) / 1e18)}"
        return [self.command, self.network, work, *hours, memory, "" if batches == 1 else str(batches)]


def _short(value: float) -> str:
    if value < 0.01:
        return "< 0.01" if value else "-"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _cost(
    name: str, network: Network, data: Data, *, verb: str = "teach", runs: int = 1, command: str = "", **changes: Any
) -> Cost:
    """The row of a `teach` or `distil` preset. A teacher's pairs are padded to the maximum length, a student's not."""
    preset = read_preset(name)
    recipe = RECIPES[preset.recipe]().train if preset.recipe else None
    values = preset.values | changes
    tokens = values["max_length"] if verb == "teach" else data.tokens
    batch = values["tokens_per_step"] / tokens if "tokens_per_step" in values else values["questions_per_step"]
    steps = values.get("steps") or ceil(values["epochs"] * data.train / batch)
    every = values["evaluate_every"]
    evaluations = 1 + ceil(steps / every if every >= 1 else round(1 / every, 6))
    networks = EXITS if recipe and values["exits"] else [network]
    drawn = sum(each.forward(tokens) for each in networks) / len(networks)
    precision = values["precision"]
    return Cost(
        command=command or f"`train {preset.verb} --recipe {name}`",
        network=network.name,
        training=3 * drawn * steps * batch,
        dev=network.forward(tokens) * data.dev * evaluations,
        precision=precision,
        runs=runs,
        fixed=WEIGHT[precision] * network.weights,
        step=LAYER[precision] * network.width * network.run * tokens * batch,
    )


def _scores() -> Iterator[Cost]:
    for network in (ALBERT_XXLARGE, LARGE):
        yield Cost(
            command="`data score --precision bf16` of ASNQ's training pairs",
            network=network.name,
            training=network.forward(128) * ASNQ.train,
            dev=0,
            precision="bf16",
            fixed=2 * network.weights,
        )


def _pairwise() -> Iterator[Cost]:
    """The rows of pairwise training on Robust04.

    A network reads questions and documents separately, or the question joined with each window of both documents. For
    a student, the forward passes of its teachers are added.
    """
    values = read_preset("trmd/robust04").values
    length, window, question = (values[f"{name}"] for name in ("document_length", "window", "question_length"))
    windows = [min(window, length - start) for start in range(0, length, window)]
    document = sum(BASE.forward(each + 2) for each in windows)
    joint, alone = sum(BASE.forward(question + each + 3) for each in windows), BASE.forward(question + 2)
    triples = values["steps"] * values["triples_per_step"]
    evaluations = 1 + values["steps"] // values["evaluate_every"]
    apart = question + 2 + 2 * (length + 2 * len(windows))
    together = 2 * (length + (question + 3) * len(windows))
    for command, triple, pair, weights, tokens in (
        ("`trmd/mono`", 3 * 2 * joint, joint, 16, together),
        ("`trmd/twin`, `colbert`, `tr-*`", 3 * (2 * document + alone), document, 16, apart),
        ("`trmd/trmd-*`", 4 * (2 * document + alone) + 2 * joint, document, 24, apart),
        ("`trmd/joint-*`", 3 * 2 * joint + 2 * joint + 2 * document + alone, joint, 24, together),
    ):
        yield Cost(
            command=f"`train pairwise`, {command}, a fold",
            network="BERT-base",
            training=triple * triples,
            dev=pair * ROBUST04.dev * evaluations,
            precision="fp32",
            fixed=weights * BASE.weights,
            step=LAYER["fp32"] * BASE.width * BASE.layers * values["triples_per_step"] * tokens,
        )


def _pretraining() -> Iterator[Cost]:
    """The rows of pre-training. Dev data are left out, because they are the user's; ELECTRA has an added generator."""
    values = read_preset("ssp/pretrain-sdc").values
    length, examples, precision = values["max_length"], values["examples_per_step"], values["precision"]
    for name, networks, vocabulary in (("RoBERTa-base", (BASE,), 50_265), ("ELECTRA-base", (BASE, GENERATOR), 30_522)):
        language = networks[-1]
        words = MASKED * length * 2 * language.width * vocabulary
        kept = sum(LAYER[precision] * each.width * each.run for each in networks) + 8 * MASKED * vocabulary
        yield Cost(
            command="`train pretrain --recipe ssp/pretrain-*`",
            network=name,
            training=3 * (sum(each.forward(length) for each in networks) + words) * values["steps"] * examples,
            dev=0,
            precision=precision,
            fixed=WEIGHT[precision] * sum(each.weights for each in networks),
            step=kept * length * examples,
        )


def costs() -> Iterator[Cost]:
    """The rows of all commands of the papers' experiments."""
    for network in (ALBERT_XXLARGE, LARGE, BASE):
        yield _cost("cerberus/teacher-asnq", network, ASNQ)
        yield _cost("cerberus/teacher-wikiqa", network, WIKIQA)
    yield from _scores()
    heads = {name: _student(name) for name in ("asnq", "wikiqa", "wikiqa-b10-3h2", "wikiqa-b8-3h4", "wikiqa-b6-3h6")}
    for name, network in heads.items():
        yield _cost(f"cerberus/{name}", network, ASNQ if name == "asnq" else WIKIQA, verb="distil")
    for name, data in (("distilled-asnq", ASNQ), ("distilled-wikiqa", WIKIQA)):
        yield _cost(f"cerberus/{name}", BASE, data, verb="distil")
    grid = "`train sweep grid --recipe cerberus/wikiqa`, 4 x 3 x 2 runs"
    yield _cost("cerberus/wikiqa", heads["wikiqa"], WIKIQA, verb="distil", runs=24, command=grid)
    grid = "`train sweep cerberus --recipe cerberus/wikiqa`, 6 rows of 4 x 3 x 2 x 5 x 3 runs, 2 of 2 x 5 x 3"
    yield _cost("cerberus/wikiqa", heads["wikiqa"], WIKIQA, verb="distil", runs=6 * 360 + 2 * 30, command=grid)
    yield _cost("ct/asnq", BASE, ASNQ, verb="distil")
    yield _cost("ct/adapt", BASE, WIKIQA, verb="distil")
    yield from _pairwise()
    yield from _pretraining()
    for name, data in (("wikiqa-roberta", WHOLE_WIKIQA), ("wikiqa-electra", WHOLE_WIKIQA)):
        yield _cost(f"ssp/fine-tune-{name}", BASE, data)
    for name in ("asnq-roberta", "asnq-electra"):
        yield _cost(f"ssp/fine-tune-{name}", BASE, ASNQ)
    for network in (BASE, LARGE):
        yield _cost("tanda/transfer-roberta", network, ASNQ)
        yield _cost("tanda/adapt-roberta", network, WIKIQA)


def _student(name: str) -> Network:
    values = read_preset(f"cerberus/{name}").values
    shape = f"B{values['body_layers']} {values['heads']}H{12 - values['body_layers']} of ELECTRA-base"
    return Network(name=shape, layers=12, width=768, body=values["body_layers"])


def section() -> str:
    """The part of docs/papers.md, from its heading to the end of the page."""
    header = ["command", "network", "10^18 operations", "hours of training", "hours on dev", "GB", "`--accumulate`"]
    tf32, half = RATE["fp32"] / 1e12, RATE["fp16"] / 1e12
    return f"""{HEADING}

**Estimates, not measurements**: `python -m tools.costs` writes this section.

- Operations are counted from the presets' steps and batches and from the lengths below: three times the forward pass
  for a training step, and one forward pass more of each teacher in `trmd/trmd-*` and `trmd/joint-*`. `data score` is
  one forward pass. The assumed rate is about a fifth of the peak of dense products
  ({tf32:g} TFLOP/s in TF32, {half:g} in 16 bits).
- Every run is counted to its last step; those of `cerberus/*`, `ct/asnq`, `ct/adapt` and `ssp/fine-tune-*` may stop
  earlier. Texts of `score` (128 tokens), `teach`, `pretrain` and `pairwise` are counted at their greatest length; pairs
  of `distil` are counted with {ASNQ.tokens:g} tokens on ASNQ and {WIKIQA.tokens:g} on WikiQA. For a fold of Robust04
  {ROBUST04.dev:,} documents on dev are assumed.
- Reading data, writing forms, waiting, and the dev data of `pretrain` are not counted. The table leaves out IAS2 and
  GPD, which are private, and among others TrecQA, ClueWeb09b, ALBERT-base, `ct/sr-*`, `ssp/no-context-*`,
  `tanda/*-bert` and `trmd/released*`. A row without a number of runs is one run of one seed.
- GB are the weights (with a copy where the precision has 16 bits, and with the teachers' weights in `trmd/trmd-*` and
  `trmd/joint-*`), gradients, Adam's moments, and what layers keep of a step (in `pretrain` with the logits over the
  vocabulary). `--accumulate` divides the last part where the sum would be more than {ROOM / 1e9:g} GB;
  `--gradient-checkpointing` of `teach` and `distil` needs less. For `data score` the weights alone are counted.
- ASNQ's dev set takes most of the work where it is ranked every 250 steps, as in CERBERUS's appendix D;
  `--evaluate-every 5000` divides this work by about 20. `--patience` counts evaluations, so it should then be smaller.
- Grids are counted with 64 pairs a step. In `sweep cerberus` the runs of each row after its grid, one for each seed,
  are not counted. All of its rows are counted with three heads, although four of the eight have one (2 % too many
  operations).

{table(header, [cost.cells for cost in costs()])}
"""


def main() -> None:
    """Write the section to docs/papers.md."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n{HEADING}")[0]
    PAGE.write_text(f"{text.rstrip()}\n\n{section()}", encoding="utf-8")


if __name__ == "__main__":
    main()

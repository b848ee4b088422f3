"""The training package's verbs of the `cerberank` program."""

from __future__ import annotations

from cerberank_models.verbs import Verb

VERBS = (
    Verb(
        name="pretrain",
        target="cerberank_training.commands.pretrain:main",
        help="continue an encoder's pre-training with context, on documents",
        extra="training",
        order=68,
    ),
    Verb(
        name="teach",
        target="cerberank_training.commands.teach:main",
        help="fine-tune a Hugging Face classifier into a teacher",
        extra="training",
        order=70,
    ),
    Verb(
        name="sample",
        target="cerberank_training.commands.sample:main",
        help="write the groups that a recipe trains on, for teachers to score",
        extra="training",
        order=80,
    ),
    Verb(
        name="score",
        target="cerberank_training.commands.score:main",
        help="let a teacher score a data set into a cache",
        extra="training",
        order=90,
        on_demand={"ray": "ray"},
    ),
    Verb(
        name="distil",
        target="cerberank_training.commands.distil:main",
        help="train a student by a recipe, on labels or teachers' scores",
        extra="training",
        order=100,
    ),
    Verb(
        name="grid",
        target="cerberank_training.commands.grid:main",
        help="train a student with every alpha, tau and learning rate, and choose on dev",
        extra="training",
        order=102,
    ),
    Verb(
        name="runs",
        target="cerberank_training.tracking.command:main",
        help="a table of the training runs below a folder: data, steps, best MAP, state",
        extra="training",
        order=103,
    ),
    Verb(
        name="pairwise",
        target="cerberank_training.commands.pairwise:main",
        help="train a bi-encoder, monoBERT or TRMD's students on triples",
        extra="training",
        order=105,
    ),
    Verb(
        name="strategies",
        target="cerberank_training.commands.strategies.cerberus_systems:main",
        help="train one student by every strategy and compare",
        extra="training",
        order=110,
    ),
    Verb(
        name="evaluate",
        target="cerberank_training.commands.evaluate:main",
        help="MAP, MRR, P@1 of a checkpoint or of a running service",
        extra="training",
        order=120,
    ),
    Verb(
        name="compare",
        target="cerberank_training.commands.compare:main",
        help="is one ranking better than another: Wilcoxon, Student, Spearman",
        extra="training",
        order=130,
    ),
    Verb(
        name="average",
        target="cerberank_training.commands.average:main",
        help="the mean of the weights of related checkpoints",
        extra="training",
        order=140,
    ),
    Verb(
        name="ensemble",
        target="cerberank_training.commands.ensemble:main",
        help="combine models' scores with weights tuned on dev",
        extra="training",
        order=150,
    ),
    Verb(
        name="tune",
        target="cerberank_training.commands.tune:main",
        help="choose the drop schedule of a cascade on dev data",
        extra="training",
        order=160,
    ),
    Verb(
        name="accelerate",
        target="cerberank_training.acceleration.command:main",
        help="add exits and a drop schedule that follow a model's own scores, without labels",
        extra="training",
        order=165,
    ),
    Verb(
        name="export",
        target="cerberank_training.commands.export:main",
        help="write a checkpoint's serving form behind a parity gate",
        extra="training",
        order=170,
    ),
)

"""Verbs that need neither the service nor the training package."""

from __future__ import annotations

from cerberank_models.verbs import TORCH, Verb

VERBS = (
    Verb(
        name="rank",
        target="cerberank_models.commands.rank:main",
        help="rank candidates from a file or standard input",
        extra="onnx-cpu",
        order=40,
        on_demand=TORCH,
    ),
    Verb(
        name="import",
        target="cerberank_models.commands.import_model:main",
        help="make a checkpoint from a Hugging Face cross-encoder",
        extra="import",
        order=60,
    ),
    Verb(
        name="weights",
        target="cerberank_models.commands.weights:main",
        help="read weights back from the ONNX graphs of a checkpoint without any, to train it further",
        extra="training",
        order=61,
    ),
    Verb(
        name="first-stage",
        target="cerberank_models.commands.first_stage:main",
        help="give a checkpoint a bi-encoder that ranks all candidates before any is read as a pair",
        extra="training",
        order=62,
    ),
    Verb(
        name="embed",
        target="cerberank_models.commands.embed:main",
        help="store the vectors of candidates, so that they are known before a question arrives",
        extra="onnx-cpu",
        order=64,
        on_demand={**TORCH, "ray": "ray"},
    ),
    Verb(
        name="shape",
        target="cerberank_models.commands.shape:main",
        help="make a checkpoint of a shape with random weights, to size a machine",
        extra="torch",
        order=65,
        on_demand={"onnx": "training", "onnxruntime": "training"},
    ),
    Verb(
        name="card",
        target="cerberank_models.commands.card:main",
        help="change the model card, the name or the version of a checkpoint",
        extra="onnx-cpu",
        order=175,
    ),
    Verb(
        name="push",
        target="cerberank_models.commands.store:push",
        help="make a checkpoint a version in a store, and move a label to it",
        extra="url",
        order=180,
    ),
    Verb(
        name="pull",
        target="cerberank_models.commands.store:pull",
        help="copy a version out of a store",
        extra="url",
        order=190,
    ),
    Verb(
        name="list",
        target="cerberank_models.commands.store:list_",
        help="show the models, versions and labels of a store",
        extra="url",
        order=200,
    ),
)

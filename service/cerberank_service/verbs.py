"""The service's verbs of the `cerberank` program."""

from __future__ import annotations

from cerberank_models.verbs import TORCH, Verb

VERBS = (
    Verb(
        name="serve",
        target="cerberank_service.serve:main",
        help="answer ranking requests over HTTP",
        extra="serve",
        order=10,
        on_demand=TORCH,
    ),
    Verb(
        name="admin",
        target="cerberank_service.admin.command:main",
        help="load, unload, roll back, drain: on a running service",
        extra="service",
        order=20,
    ),
    Verb(
        name="probe",
        target="cerberank_service.admin.probe_command:main",
        help="ask the service of this machine whether it lives or is ready",
        extra="service",
        order=25,
    ),
    Verb(
        name="keys",
        target="cerberank_service.access.keys_command:main",
        help="make, list and remove the API keys of a service",
        extra="service",
        order=30,
    ),
    Verb(
        name="label",
        target="cerberank_service.admin.label_command:main",
        help="move a label to a version, or take it away",
        extra="service,url",
        order=210,
    ),
)

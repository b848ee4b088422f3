"""Exported graphs: what their weights take. That they compute what the network computes is tested with the backends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cerberank_models.export.graphs import export_stages
from cerberank_models.export.random_weights import SHAPES, random_config, random_ranker


def test_a_layer_that_all_depths_share_is_in_a_graph_once(tmp_path: Path) -> None:
    """ALBERT-base's width, two depths: the graph is as large as the weights, which hold one layer."""
    shape = replace(SHAPES["albert-base"], vocabulary=300)
    ranker = random_ranker(random_config("albert", shape, body_layers=2, heads=1, head_layers=0))
    (graph,) = export_stages(ranker, tmp_path)
    weights = 4 * sum(parameter.numel() for parameter in ranker.parameters())
    layer = 4 * sum(parameter.numel() for parameter in ranker.body[0].parameters())
    assert abs(graph.stat().st_size - weights) < layer / 100

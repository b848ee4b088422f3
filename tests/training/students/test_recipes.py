"""The papers' recipes hold the papers' settings: a change of one of them is a decision, not an accident."""

from __future__ import annotations

import pytest

from cerberank_training.data.sampling import NegativeSampling
from cerberank_training.students.recipes import RECIPES


def test_the_cascades_recipe_is_the_papers() -> None:
    """Exits, one rate, a ramp of 4,000 steps (CT section 5.2); 2,000 tokens of all processes are ours."""
    recipe = RECIPES["roberta-base-cascade"]()
    assert ([exit_.after for exit_ in recipe.shape.exits], recipe.shape.heads) == ([4, 6, 8, 10, 12], 0)
    train = recipe.train
    assert (train.learning_rate, train.fresh_learning_rate, train.warmup) == (1e-6, 1e-6, 4000)
    assert (train.tokens_per_step, train.stages, train.train_token_embeddings) == (2000, "uniform", True)
    assert (train.weight_decay, train.final_only) == (0, 0)


@pytest.mark.parametrize(("body", "heads"), [(11, 1), (10, 2), (8, 4), (6, 6)])
def test_cerberus_recipes_are_the_papers(body: int, heads: int) -> None:
    """CERBERUS table 4's shapes and section 4.2's schedule; a step is within its batches, alpha and tau in its grid."""
    recipe = RECIPES[f"electra-base-b{body}-3h{heads}"]()
    assert (recipe.shape.body_layers, recipe.shape.heads, recipe.shape.exits) == (body, 3, ())
    assert recipe.shape.encoding.max_length == 128
    assert (recipe.objective.strategy, recipe.objective.listwise, recipe.objective.weights) == ("cerberus", 0, (1,))
    assert set(recipe.objective.alpha) <= {0, 0.1, 0.5, 0.9}
    assert set(recipe.objective.tau) <= {1, 3, 5}
    train = recipe.train
    assert (train.steps, train.evaluate_every, train.patience, train.train_token_embeddings) == (20_000, 250, 50, True)
    assert train.learning_rate == train.fresh_learning_rate
    assert train.learning_rate in (1e-6, 1e-5)
    assert 0.025 <= train.warmup <= 0.1
    assert isinstance(recipe.sampling, NegativeSampling)
    assert train.questions_per_step * (1 + recipe.sampling.own + recipe.sampling.hard + recipe.sampling.random) <= 64

"""The golden texts: questions and candidates, written for this project, on which exported checkpoints are tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder

Texts: TypeAlias = Sequence[tuple[str, Sequence[str]]]
"""Questions, each with the texts of its candidates."""
GOLDEN_TEXTS: Texts = (
    (
        "How tall is the Eiffel Tower?",
        (
            "The Eiffel Tower was built for the World's Fair of 1889.",
            "With its antennas the Eiffel Tower is 330 metres tall.",
            "Paris is the capital of France and lies on the river Seine.",
            "Gustave Eiffel's company designed and built the tower.",
            "About seven million people climb the tower every year.",
            "The Empire State Building in New York is 381 metres tall without its antenna.",
        ),
    ),
    (
        "who wrote the opera carmen",
        (
            "Carmen had its first night in Paris in March 1875.",
            "The story is set in Seville, among soldiers and cigarette makers.",
            "The French composer Georges Bizet wrote the opera Carmen shortly before he died.",
            "Opera houses all over the world play it every season.",
        ),
    ),
    (
        "What do bees make honey from?",
        (
            "Beekeepers wear a veil and gloves.",
            "Bees collect nectar from flowers and turn it into honey in the hive.",
            "",
            "A jar of honey keeps for years when it is closed.",
            "Bumblebees live in small colonies below the ground, often in the old nests of mice, and they fly in "
            "weather that keeps honey bees at home, which makes them welcome in orchards in early spring.",
        ),
    ),
)


def encoded(encoder: PairEncoder, texts: Texts = GOLDEN_TEXTS) -> list[EncodedPairs]:
    """The pairs of each question."""
    return [encoder.encode(question, [Candidate(text=text) for text in candidates]) for question, candidates in texts]

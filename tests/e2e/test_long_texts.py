"""The bundled checkpoint finds an answer at the end of a text that is much longer than what it reads of a pair."""

from __future__ import annotations

from itertools import product

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs
from cerberank_models.windows import Windowing

QUESTION = "Who designed the stone bridge of Aldermouth?"
ANSWER = "The stone bridge of Aldermouth was designed by the engineer Clara Whitfield."
PLACES = ("the harbour", "the old mill", "the market hall", "the school", "the lower street", "the church tower")
EVENTS = (
    "In the spring of that year {} was painted again, because the salt of the sea had eaten the old colour away.",
    "Travellers who came by coach used to stop at {} for a night, and many of them wrote home about the fish.",
    "A flood reached {} in November, and for three weeks the people crossed the meadows in small rowing boats.",
    "The council met at {} on Mondays, where it argued for hours about the price of flour and about the roads.",
    "Children were told not to play near {} after dark, although most of them did so all through the summer.",
    "A merchant from the north bought the house beside {} and kept bees there, whose honey won several prizes.",
    "The clock of {} was always four minutes late, which nobody minded until the railway came to the valley.",
)
TOPICS = ("bridge", "harbour", "railway station", "town hall", "lighthouse")
FACTS = (
    "The {} of Aldermouth is visited by many people in summer.",
    "The {} of Aldermouth was closed for repairs in 1931.",
    "Postcards of Aldermouth often show the {} at sunset.",
    "The river below the {} is deep and cold.",
    "A fair is held near the {} every September.",
    "The {} burned down once and was built again in brick.",
    "Nobody remembers when the {} was painted grey.",
    "From the {} one can see the islands on a clear day.",
    "The {} is two hundred metres from the post office.",
    "Tickets for the {} are sold at the kiosk.",
)


def passage() -> str:
    """800 words and more, of which the last sentence alone answers."""
    sentences = [event.format(place) for place, event in product(PLACES, EVENTS)]
    return " ".join([*sentences, ANSWER])


def test_an_answer_at_the_end_of_a_long_passage_is_found_in_a_window_alone() -> None:
    """The passage is first of 51 texts with windows, and its window has the answer; without, all scores are low."""
    text, checkpoint = passage(), read_checkpoint(BUNDLED)
    assert len(text.split()) >= 800
    backend, encoder = open_backend(checkpoint, precision="int8"), checkpoint.encoder()
    distractors = [fact.format(topic) for topic, fact in product(TOPICS, FACTS)]
    assert len(distractors) == 50
    candidates = [Candidate(text=each) for each in [*distractors, text]]
    cut = rank_pairs(backend, encoder.encode(QUESTION, candidates))
    assert cut.scores.max() < 0.5
    read = rank_pairs(backend, encoder.encode(QUESTION, candidates, windowing=Windowing()))
    assert read.order[0] == 50
    assert read.scores[50] > 0.5
    start, end = read.spans[50].tolist()
    assert ANSWER in text[start:end]
    assert end - start < len(text) / 4

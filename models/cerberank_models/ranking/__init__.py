"""One question from a call to an answer, apart from what a device computes: `prepare`, `score_texts`, `answer_of`."""

"""Batches of transformers' Trainer that are made by a process which begins anew, as on macOS and Windows."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
import torch
from transformers import Trainer


def compare_with_copies(run: Callable[[], object]) -> None:
    """End the run where it would train, after its batches were compared with those of pickled copies."""

    def train(self: Trainer, **_: object) -> None:
        for data in (self.train_dataset, self.eval_dataset):
            copy, collate = pickle.loads(pickle.dumps((data, self.data_collator)))
            ours, theirs = self.data_collator([data[1], data[2]]), collate([copy[1], copy[2]])
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train", train)
        with pytest.raises(KeyboardInterrupt):
            run()

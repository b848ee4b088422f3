"""A ranker in this process: the class `cerberank.Ranker`, which `cerberank rank` uses too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from cerberank_models.answer import Answer
from cerberank_models.backends.processors import compute_threads
from cerberank_models.backends.registry import form_for, open_backend
from cerberank_models.backends.stage_contract import Backend, Scores
from cerberank_models.checkpoint.bundled import BUNDLED, default_checkpoint
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.convert.checkpoint_cache import imported_checkpoint, needed_precisions
from cerberank_models.convert.source import find_source
from cerberank_models.encoding import Candidate, EncodedPairs
from cerberank_models.first_stage.opening import open_first_stage
from cerberank_models.first_stage.question_texts import FirstStage
from cerberank_models.output import installed_by
from cerberank_models.rank_pairs import pairs_policy, rank_together
from cerberank_models.ranking.assemble import ResponseOptions, answer_of, response_of, whole_ranking
from cerberank_models.ranking.call import RankCall
from cerberank_models.ranking.prepare import Model, after_lexical, prepare, score_texts
from cerberank_models.request import Options, Questions, RankRequest, Texts, checked_pair, is_blank
from cerberank_models.store import Store
from cerberank_models.windows import MOST_ROWS, Reading, windowing_of

STORE = "store://"
OF_SERVICES = frozenset({"model", "latency_target_ms", "priority", "return_text"})
"""The fields of requests that a ranker does not take; its results always have their texts."""
BLOCK_CHARACTERS = 65_536
"""The most characters of the candidates of several questions that `rank_batch` computes together."""
BLOCK_TOKENS = 16_384
"""The number of tokens that `predict` collects from several questions before it scores them; the backend divides them
into batches of similar lengths."""


class Ranker:
    """A checkpoint that is ready to rank. Call it from one thread at a time; its backend computes with several."""

    def __init__(self, checkpoint: Checkpoint, backend: Backend[Any], first_stage: FirstStage | None = None) -> None:
        """Use an open backend, and an open first stage if the checkpoint has one; `load` opens all of them."""
        self.checkpoint = checkpoint
        self.backend = backend
        self.first_stage = first_stage
        self._model = Model(checkpoint=checkpoint, encoder=checkpoint.encoder(), first_stage=first_stage)
        self._opened: dict[str, Any] | None = None

    @classmethod
    def load(
        cls,
        source: str | Path | None = None,
        *,
        device: str = "cpu",
        backend: str | None = None,
        precision: str | None = None,
        threads: int | None = None,
        revision: str | None = None,
        cache: str | Path | None = None,
        unanswered_share: float | None = None,
    ) -> Ranker:
        """Open a checkpoint, after importing it from Hugging Face or pulling it from a store if needed.

        `source` is one of:

        - a checkpoint folder;
        - a folder or hub id of a Hugging Face cross-encoder, which is imported (extra `import`); `revision` is its
          branch, tag or commit;
        - `store://[ADDRESS/]MODEL[@LABEL|@VERSION]`, which is pulled; the default of the address is `CERBERANK_STORE`;
        - `cerberank-mini`, the bundled checkpoint;
        - None for the folder `CERBERANK_CHECKPOINT`, or the bundled checkpoint if that is not set.

        Imported and pulled checkpoints are kept in the folder `cache` (default: `~/.cache/cerberank`).

        The default on a processor is ONNX in int8, or in fp32 for an imported model, or torch in fp32 for a decoder.
        The default on a GPU (`device="cuda"`) is torch in fp16. `threads` None uses all processors that the process may
        use.

        `unanswered_share` is the share of your questions that has no answer, and moves the probabilities of a
        calibrated checkpoint (default: the share of its calibration questions, which is half of them for the bundled
        checkpoint).

        Raises CheckpointError, SourceError, ModelImportError, StoreError or ValueError with a message that says what is
        wrong, and ModuleNotFoundError with the name of the missing extra.
        """
        place = located(
            source,
            revision=revision,
            cache=None if cache is None else Path(cache),
            device=device,
            backend=backend,
            precision=precision,
        )
        checkpoint = read_checkpoint(place)
        if unanswered_share is not None:
            checkpoint = checkpoint.with_unanswered(unanswered_share)
        form = form_for(checkpoint.manifest.files, device, backend=backend, precision=precision)
        opened: dict[str, Any] = {
            "kind": form.backend,
            "precision": form.precision,
            "device": device,
            "threads": threads,
        }
        try:
            first = open_first_stage(checkpoint, **opened) if checkpoint.config.first_stage is not None else None
            ranker = cls(checkpoint, open_backend(checkpoint, **opened), first)
        except ModuleNotFoundError as error:
            extra = {"onnx": "serve"}.get(form.backend, form.backend)
            message = f"the backend {form.backend} needs {error.name}; {installed_by(extra)}"
            raise ModuleNotFoundError(message, name=error.name) from error
        ranker._opened = opened | {"unanswered_share": unanswered_share}
        return ranker

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the checkpoint's folder and the form, which are opened again where the ranker is unpickled.

        Raises TypeError for a ranker that `load` has not made.
        """
        if self._opened is None:
            raise TypeError("only a ranker that Ranker.load has opened can be pickled")
        return _reopened, (self.checkpoint.path, self._opened)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.checkpoint.config.name

    @property
    def version(self) -> str:
        """The model's version."""
        return self.checkpoint.manifest.version

    @property
    def form(self) -> str:
        """The precision, and the device with its number of threads if `load` has opened the ranker."""
        if self._opened is None:
            return self.backend.precision
        device, threads = self._opened["device"], compute_threads(self._opened["threads"])
        shared = f", {threads} thread{'s' if threads > 1 else ''}" if device == "cpu" else ""
        return f"{self.backend.precision}, {device}{shared}"

    def __repr__(self) -> str:
        """The model's name and version, and its backend's precision."""
        return f"<Ranker {self.name}@{self.version} in {self.backend.precision}>"

    def rank(self, question: str, candidates: Texts, **options: Unpack[Options]) -> Answer:
        """The candidates of one question, best first.

        Options, with their meaning and defaults in `POST /v1/rank` (docs/api.md): `top_k`, `min_score`,
        `min_precision`, `drop_ratio`, `lexical_ratio`, `deadline_ms`, `windows`, `instruction` and `return_heads`.
        After `deadline_ms` no further stage is started, but a running stage is finished, and the first one always runs.

        `candidates` may be any iterable of texts, such as a list, a generator or a Series of pandas.

        Raises ValueError for a blank question, an option out of its range, or an `instruction` that the
        model does not read; CalibrationError if the model cannot reach `min_precision`; NonFiniteScoreError if the
        network computes NaN or infinity.
        """
        (answer,) = self._ranked([RankRequest.of(question, candidates, **options)])
        return answer

    def rank_batch(
        self, questions: Questions, candidates: Texts | None = None, **options: Unpack[Options]
    ) -> list[Answer]:
        """An answer to each question, in their order; questions of similar sizes are computed together.

        A question is a text, or a dict with the fields of `POST /v1/rank`: `question`, and its own `candidates` and
        options where it has other ones than the call. One with `deadline_ms` is ranked alone, and its time begins then.
        All are checked before the first is ranked. Raises the errors of `rank`.
        """
        answers: list[Answer] = []
        block: list[RankRequest] = []
        characters = 0
        for request in RankRequest.each_of(questions, candidates, **options):
            size = BLOCK_CHARACTERS + 1 if request.deadline_ms is not None else request.characters
            if block and characters + size > BLOCK_CHARACTERS:
                answers += self._ranked(block)
                block, characters = [], 0
            block.append(request)
            characters += size
        return answers + (self._ranked(block) if block else [])

    def _ranked(self, requests: Sequence[RankRequest]) -> list[Answer]:
        """The answers to questions whose pairs run together; only one alone may have a deadline."""
        end = None
        if (milliseconds := requests[0].deadline_ms) is not None:
            end = time.monotonic() + milliseconds / 1000.0
        for request in requests:
            if others := sorted(OF_SERVICES & request.model_fields_set):
                raise ValueError(f"{others[0]}: a ranker in this process has no such option")
        questions = []
        for request in requests:
            prepared = after_lexical(prepare(RankCall.of(request).limited(MOST_ROWS), self._model))
            if self.first_stage is not None and prepared.texts is not None:
                prepared = score_texts(prepared, self.first_stage.backend.encode(prepared.texts.encoded))
            questions.append(prepared)
        works = [(each.pairs, each.pairs_policy) for each in questions if len(each.pairs)]
        rankings = iter(rank_together(self.backend, works, until=end))
        answers = []
        for request, prepared in zip(requests, questions, strict=True):
            ranked = next(rankings) if len(prepared.pairs) else None
            options = ResponseOptions.of(request.model_copy(update={"return_text": True}))
            values = response_of(answer_of(prepared, whole_ranking(prepared, ranked)), options)
            answers.append(replace(Answer.from_json(values), id=None, timing_ms={}))
        return answers

    def predict(self, pairs: Iterable[tuple[str, str]], *, windows: Reading | None = None) -> NDArray[np.float64]:
        """P(the text answers the question) for each (question, text), shape [n], independent of the other pairs.

        This is `CrossEncoder.predict` of sentence-transformers with a sigmoid, except that long texts are read in
        windows, and blank texts have the score 0. Raises ValueError for what is not a pair of texts, and
        NonFiniteScoreError if the network computes NaN or infinity.
        """
        # The pairs by question, which is then tokenised once.
        rows: dict[str, list[tuple[int, Candidate]]] = {}
        blank: list[int] = []
        total = 0
        for total, pair in enumerate(pairs, start=1):
            question, text = checked_pair(pair, total - 1)
            rows.setdefault(question, []).append((total - 1, Candidate(text=text)))
            if is_blank(text):
                blank.append(total - 1)
        # Questions are collected until a block is worth a run of the backend.
        scores = np.empty(total)
        block: list[tuple[list[int], EncodedPairs]] = []
        tokens = 0
        for question, members in rows.items():
            places = [place for place, _ in members]
            if self.first_stage is not None and not self.checkpoint.config.reads_pairs:
                texts = self.first_stage.read(question, [candidate.text for _, candidate in members])
                scores[places] = self.first_stage.compute(texts)
                continue
            encoded = self._model.encoder.encode(
                question, [candidate for _, candidate in members], windowing=windowing_of(windows)
            )
            block.append((places, encoded))
            tokens += encoded.tokens
            if tokens >= BLOCK_TOKENS:
                self._score(block, scores)
                block, tokens = [], 0
        if block:  # a ranker of vectors alone has no pairs
            self._score(block, scores)
        scores[blank] = 0.0
        return scores

    def _score(self, block: Sequence[tuple[list[int], EncodedPairs]], scores: Scores) -> None:
        """Score the pairs of several questions, and write the scores to their places in `scores`."""
        policy = pairs_policy(self.checkpoint.config, 0.0)
        rankings = rank_together(self.backend, [(pairs, policy) for _, pairs in block])
        for (places, _), ranking in zip(block, rankings, strict=True):
            scores[places] = ranking.scores


def _reopened(place: Path, opened: Mapping[str, Any]) -> Ranker:
    """The ranker that was pickled. Raises CheckpointError if its folder is not on this machine."""
    return Ranker.load(
        place,
        device=opened["device"],
        backend=opened["kind"],
        precision=opened["precision"],
        threads=opened["threads"],
        unanswered_share=opened["unanswered_share"],
    )


def _is_native(source: str | Path | None) -> bool:
    """True for a checkpoint folder, a store and None; False for a model that has to be imported."""
    if source is None or str(source).startswith(STORE):
        return True
    # A Path is always a folder: if it does not exist, it is not taken for a hub id.
    missing = isinstance(source, Path) and not source.is_dir()
    return missing or (Path(source) / "manifest.json").is_file()


def located(
    source: str | Path | None,
    *,
    revision: str | None = None,
    cache: Path | None = None,
    device: str = "cpu",
    backend: str | None = None,
    precision: str | None = None,
) -> Path:
    """The folder of the checkpoint that `source` names (`Ranker.load`), after importing or pulling it if needed."""
    if source == BUNDLED.name and not Path(source).exists():
        return BUNDLED
    if not _is_native(source):
        model = find_source(str(source), revision)
        precisions = needed_precisions(model, device, backend=backend, precision=precision)
        return imported_checkpoint(model, precisions, cache)
    if revision is not None:
        raise ValueError("revision belongs to a model on the Hugging Face hub")
    if source is None:
        return default_checkpoint()
    text = str(source)
    if text.startswith(STORE):
        address, _, name = text.removeprefix(STORE).rpartition("/")
        address = address or os.environ.get("CERBERANK_STORE", "")
        if not address or not name:
            raise ValueError(f"{text} names no store: store://ADDRESS/MODEL@LABEL, or set CERBERANK_STORE")
        return Store(address).cached(name, cache)
    return Path(source)

"""The route of embeddings: body -> read and tokenise (worker) -> engine's first stage -> render (worker) -> send."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from fastapi import Request, Response

from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_models.encoding import EncodedPairs
from cerberank_service.access.access import charge_tokens
from cerberank_service.dialects.embeddings import EmbeddingsRequest, check_encoder, render
from cerberank_service.dialects.vllm import format_error, texts_of
from cerberank_service.dialects.wire import check_count, check_structure, read_json, validate
from cerberank_service.http.accept import AcceptedRequest, accept, unless_disconnected
from cerberank_service.http.error_responses import request_id_of
from cerberank_service.http.rank_route import CLIENT_GONE, RankRoute
from cerberank_service.http.response_headers import UNREAD
from cerberank_service.telemetry.logs import log_embeddings, request_fields
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.registry import Lease

PATH = "/v1/embeddings"


@dataclass(frozen=True, slots=True)
class Embedded:
    """An answer as bytes, with the version and the texts that it is of."""

    content: bytes
    version: Reference
    texts: EncodedPairs


@dataclass(frozen=True, slots=True)
class EmbeddingsRoute:
    """Answers with the vectors of texts, by the limits, keys, errors and bodies of the ranking route."""

    rank: RankRoute

    async def __call__(self, request: Request) -> Response:
        """200 with a vector for each text; an error in the format of OpenAI's API."""
        request_id, service, trace_id = request_id_of(request), self.rank.service, None
        try:
            with service.tracing.request(PATH, request.headers, request_id) as span:
                trace_id = span.trace_id
                async with accept(service, self.rank.bodies, request) as accepted:
                    embedded = await unless_disconnected(request, self._embedded(accepted))
        except Exception as error:  # `respond` logs the reason
            return self.rank.errors.respond(error, request, format_error, trace_id=trace_id)
        if embedded is None:
            return Response(status_code=CLIENT_GONE)
        (model, version), texts = embedded.version, embedded.texts
        log_embeddings(
            request_fields(request),
            trace_id,
            request_id=request_id,
            model=model,
            version=version,
            texts=len(texts),
            tokens=texts.tokens,
            total_ms=round(1000.0 * (time.monotonic() - accepted.received), 3),
        )
        cut = int(texts.truncated.sum())
        headers = {"X-Request-Id": request_id, "X-Model-Version": f"{model}@{version}"} | (
            {UNREAD[0]: str(cut)} if cut else {}
        )
        return Response(embedded.content, media_type="application/json", headers=headers)

    async def _embedded(self, accepted: AcceptedRequest) -> Embedded:
        """The answer to an accepted request. Raises ServiceError."""
        service = self.rank.service
        service.versions.check_room()  # before the body is parsed
        with service.versions.lease() as lease:
            read = partial(self._read, accepted, lease)
            request, live, texts = await service.workers.read(read, size=accepted.size, caller=accepted.share)
            with charge_tokens(accepted.caller, texts.tokens):
                vectors = await service.pipeline.embed(
                    live, texts, received=accepted.received, deadline=accepted.latest
                )
                rendered = partial(render, request, live.reference.model, vectors, texts.tokens)
                content = await service.workers.run(rendered, size=accepted.size)
            service.versions.answered()
            return Embedded(content, live.reference, texts)

    def _read(self, accepted: AcceptedRequest, lease: Lease) -> tuple[EmbeddingsRequest, LiveVersion, EncodedPairs]:
        """The request, the version that answers, and the texts as its encoder reads candidates. Runs in a worker."""
        body, most = accepted.body.content, self.rank.service.settings.max_candidates
        check_structure(body, most)
        document = read_json(body)
        request = validate(EmbeddingsRequest, document)
        texts = texts_of(request.input)
        check_count("input", len(texts), most)
        self.rank.ignored.log(
            "openai", (name for name in document.fields if name not in EmbeddingsRequest.model_fields)
        )
        # A canary's vectors could be those of another encoder, and vectors of two encoders cannot be compared.
        name = request.model or ""
        live = lease.take(request.model, None if "@" in name else "stable", "")
        first = live.first_stage
        check_encoder(request, None if first is None else first.config, live.reference.model)
        assert first is not None, "it was checked"
        tenant = "" if accepted.caller is None else accepted.caller.key.sha256
        encoded = first.encoder.candidates(texts, self.rank.service.pipeline.tokens, partition=tenant)
        return request, live, encoded

"""The command `cerberank mcp`: a server of the Model Context Protocol, whose tools rank texts for a language model.

The protocol's SDK is imported when the command runs: only the extra `mcp` installs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from inspect import getdoc
from threading import Lock
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from cerberank_models import __version__
from cerberank_models.answer import Answer
from cerberank_models.client import Client, RequestError
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_models.ranker import Ranker

if TYPE_CHECKING:
    from mcp.server import MCPServer

KEY = "CERBERANK_API_KEY"
"""The variable with the API key of a service; MCP's programs pass secrets in the environment."""
PRECISION = 0.85
"""The precision of first results whose threshold `filter` uses by default."""
Query = Annotated[str, Field(description="One question, in a full sentence.")]
Documents = Annotated[list[str], Field(description="Sentences or passages that may answer it.")]


class RankedText(BaseModel):
    """A document of the answer."""

    index: Annotated[int, Field(description="Its place in `documents`, counted from 0.")]
    score: Annotated[float | None, Field(description="P(it answers the query); null if no stage scored it.")]
    text: str


class RankedTexts(BaseModel):
    """The answer of both tools."""

    answerable: Annotated[
        float | None, Field(description="P(any of the documents answers the query); null if the model cannot say.")
    ]
    results: Annotated[list[RankedText], Field(description="The documents, best first.")]
    warnings: list[str]


class Tools:
    """The tools. Their docstrings are what a language model reads about them."""

    def __init__(self, rank: Callable[..., Answer]) -> None:
        """`rank` is that of a Ranker or a Client."""
        self._rank = rank

    def rerank(
        self,
        query: Query,
        documents: Documents,
        top_n: Annotated[int | None, Field(ge=1, description="Number of documents to return; all if left out.")] = None,
    ) -> RankedTexts:
        """Order documents by the probability that each of them answers the query, best first.

        Use it on search results before reading or quoting them. `answerable` says how likely any document answers.
        """
        return self._ranked(query, documents, top_k=top_n)

    def filter(
        self,
        query: Query,
        documents: Documents,
        min_score: Annotated[
            float | None,
            Field(description=f"Lowest score to keep; by default the model's for {PRECISION:.0%} precision."),
        ] = None,
    ) -> RankedTexts:
        """Keep the documents that answer the query, best first; none if no document does.

        Use it to decide whether search results suffice for an answer. A model without calibration needs `min_score`.
        """
        return self._ranked(
            query, documents, **({"min_precision": PRECISION} if min_score is None else {"min_score": min_score})
        )

    def _ranked(self, query: str, documents: list[str], **options: object) -> RankedTexts:
        """The answer. Raises ToolError, whose message the language model reads, for what it or its user can mend."""
        from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415 - see above

        try:
            answer = self._rank(query, documents, **options)
        except (ValueError, RequestError, NonFiniteScoreError) as error:
            raise ToolError(str(error)) from error
        texts = [RankedText(index=each.index, score=_short(each.score), text=documents[each.index]) for each in answer]
        return RankedTexts(answerable=_short(answer.answerable), results=texts, warnings=list(answer.warnings))


def _short(probability: float | None) -> float | None:
    """A probability with four decimals, because a language model reads every digit."""
    return None if probability is None else round(probability, 4)


def mcp(model: str | None = None, /, *, url: str | None = None) -> None:
    """Serve the tools `rerank` and `filter` to a language model, by the Model Context Protocol on standard input and
    output.

    Args:
        model: Checkpoint folder, hub id or store://ADDRESS/MODEL@LABEL (default: the bundled model); with --url the
            name of a model of the service.
        url: Address of a service that ranks instead of this process; CERBERANK_API_KEY holds its key.
    """
    rank = _of_model(model) if url is None else partial(Client(url, api_key=os.environ.get(KEY)).rank, model=model)
    server_of(rank).run()


def server_of(rank: Callable[..., Answer]) -> MCPServer:
    """The server whose tools rank by `rank`."""
    from mcp.server import MCPServer  # noqa: PLC0415 - see above
    from mcp_types import ToolAnnotations  # noqa: PLC0415

    server, tools = MCPServer("cerberank", version=__version__, log_level="WARNING"), Tools(rank)
    for tool in (tools.rerank, tools.filter):
        server.add_tool(tool, description=getdoc(tool), annotations=ToolAnnotations(read_only_hint=True))
    return server


def _of_model(model: str | None) -> Callable[..., Answer]:
    """`Ranker.rank` of a model, for calls from several threads."""
    ranker, lock = Ranker.load(model), Lock()

    def rank(query: str, documents: list[str], **options: object) -> Answer:
        with lock:
            return ranker.rank(query, documents, **options)  # type: ignore[arg-type]

    return rank

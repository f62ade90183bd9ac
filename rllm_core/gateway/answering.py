"""Answering one call: from the kind of upstream it goes to, within bounds, whatever goes wrong."""

import asyncio
import traceback
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiohttp import web

from rllm_core.errors import RllmError
from rllm_core.gateway.calls import Answer, Refusal
from rllm_core.gateway.exchange import Exchange
from rllm_core.gateway.reply import AgentGone, Reply
from rllm_core.gateway.session import Session
from rllm_core.gateway.tokens import answer_with_tokens
from rllm_core.gateway.tree import Node
from rllm_core.gateway.wire import Wire
from rllm_core.types import ErrorRecord, Stop, Usage
from rllm_core.upstream import WireUpstream

__all__ = ["answer_call", "answer_empty", "within_bounds"]

T = TypeVar("T")


async def answer_call(exchange: Exchange, reply: Reply, wire: Wire) -> web.StreamResponse:
    """Get the answer and send it, or the refusal in its place; AgentGone if nobody takes it."""
    session = exchange.session
    node: Node | None = None
    try:
        async with reply.alive():
            answer, node = await within_bounds(session, _answer(exchange, reply, wire))
        return await reply.finish(answer)
    except Refusal as refusal:
        return await reply.refuse(refusal)
    except (AgentGone, asyncio.CancelledError):
        # The agent is gone: a reply that it never got is no part of its conversation.
        if node is not None:
            session.tree.drop(node)
        session.counts["calls whose agent hung up"] += 1
        raise


async def answer_empty(exchange: Exchange, reply: Reply) -> web.StreamResponse:
    """An empty reply to a request that only warms a connection up: it is no call."""
    exchange.session.counts["warm-ups answered without a model"] += 1
    message = {"role": "assistant", "content": ""}
    started = int(exchange.started)
    return await reply.finish(
        Answer(exchange.id, exchange.model, started, message, "stop", Usage())
    )


async def _answer(exchange: Exchange, reply: Reply, wire: Wire) -> tuple[Answer, Node]:
    if isinstance(exchange.route.upstream, WireUpstream):
        return await wire.answer(exchange, reply)
    return await answer_with_tokens(exchange)


async def within_bounds(session: Session, work: Coroutine[Any, Any, T]) -> T:
    """The boundary: whatever an upstream does wrong becomes a record and a refusal."""
    limit = asyncio.timeout_at(_when(session.limits.deadline))
    try:
        with session.running():
            async with limit:
                return await work
    except (Refusal, AgentGone):
        raise
    except Exception as error:  # the boundary
        if limit.expired():
            why = "the rollout's deadline passed during this call"
            raise session.refuse(Stop.TIMEOUT, why) from None
        category = error.category if isinstance(error, RllmError) else "model"
        message = str(error) or type(error).__name__
        session.errors.append(ErrorRecord(category, message, traceback.format_exc()))
        raise Refusal(502, message) from error


def _when(deadline: float) -> float | None:
    return None if deadline == float("inf") else deadline

"""Recording a server's reply in the token tree, and saying whether its ids can be trusted."""

from array import array

from rllm_core.gateway.calls import Answer
from rllm_core.gateway.exchange import Exchange
from rllm_core.gateway.session import Session
from rllm_core.gateway.tree import Node, Place
from rllm_core.gateway.wire_reply import WireReply
from rllm_core.types import Step, TokenIds

__all__ = ["record_wire"]

_NO_IDS = "server gave no token ids"
_RETOKENISED = "server re-tokenised"


def record_wire(exchange: Exchange, place: Place, slot: int, got: WireReply) -> tuple[Answer, Node]:
    """The reply as a step in the tree, and as an answer to the agent."""
    session = exchange.session
    place, context, doubt = _fit(session, place, got)
    known = got.output_ids is not None and got.prompt_ids is not None
    step = Step(
        exchange.id,
        model=exchange.route.model,
        reply=got.message,
        context_ids=context,
        output_ids=got.output_ids if known else array("i"),
        logprobs=got.logprobs if known and got.logprobs else array("f"),
        temperature=float({**exchange.call.asked, **session.sampling}.get("temperature", 1.0)),
        finish=got.finish,
        untrainable=doubt,
        usage=got.usage,
        started=exchange.started,
        seconds=exchange.seconds,
    )
    if doubt:
        session.counts[f"untrainable: {doubt.partition(':')[0]}"] += 1
    node = session.tree.add(place, slot, step, _WIRE if known else None)
    answer = Answer(
        exchange.id,
        exchange.model,
        int(exchange.started),
        got.message,
        got.finish,
        got.usage,
        got.prompt_ids,
        got.output_ids,
        got.logprobs,
        got.texts,
    )
    return answer, node


_WIRE = object()
"""Stands for the renderer of servers: their ids are known, how they render is not."""


def _fit(session: Session, place: Place, got: WireReply) -> tuple[Place, TokenIds, str | None]:
    """Where the reply's ids fit in the tree, what they add there, and why they may not train."""
    if got.prompt_ids is None or got.output_ids is None:
        return place, array("i"), _NO_IDS
    doubt = _disagreement(got)
    if place.parent is None:
        return place, got.prompt_ids, doubt
    if place.parent.renderer is not _WIRE:
        return place.as_root(), got.prompt_ids, doubt
    before = session.tree.sequence(place.parent)
    if got.prompt_ids[: len(before)] == before:
        return place, got.prompt_ids[len(before) :], doubt
    return place.as_root(), got.prompt_ids, doubt or _RETOKENISED


def _disagreement(got: WireReply) -> str | None:
    """Why the reply's own counts contradict each other, if they do."""
    ids = len(got.output_ids or ())
    logprobs = len(got.logprobs or ())
    if ids != logprobs:
        return f"counts disagree: {ids} token ids, {logprobs} logprobs"
    if got.counted and got.usage.completion_tokens != ids:
        return f"counts disagree: {ids} token ids, usage says {got.usage.completion_tokens}"
    return None

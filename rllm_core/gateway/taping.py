"""A server's answers over a tape: recorded as they come, or played back without the server."""

from array import array
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rllm_core.errors import RllmError
from rllm_core.gateway.calls import Refusal
from rllm_core.gateway.exchange import Exchange
from rllm_core.gateway.session import Session
from rllm_core.gateway.wire_reply import WireReply
from rllm_core.types import Stop, Usage
from rllm_core.upstream.cassette import Asked, Tape, fault_of, raise_fault

__all__ = ["RETRIED", "taped"]

RETRIED = "retried transport faults"
"""What a session counts, and a recording repeats."""


async def taped(
    tape: Tape,
    exchange: Exchange,
    body: Mapping[str, Any],
    ask: Callable[[], Awaitable[WireReply]],
) -> WireReply:
    """The recorded reply to this body, or the reply that `ask` gets, which is then recorded."""
    session = exchange.session
    asked = Asked("chat", session.id, exchange.route.role, body)
    found = tape.recorded(asked)
    if found is not None:
        return _played(session, found)
    before = session.counts[RETRIED]
    try:
        got = await ask()
    except Refusal as refusal:
        told = {"message": refusal.message, "status": refusal.status, "stop": refusal.stop}
        tape.record(asked, {"retries": session.counts[RETRIED] - before, "refusal": told})
        raise
    except RllmError as error:
        tape.record(asked, {"retries": session.counts[RETRIED] - before, **fault_of(error)})
        raise
    tape.record(asked, {"retries": session.counts[RETRIED] - before, "reply": _told(got)})
    return got


def _told(got: WireReply) -> dict[str, Any]:
    """A reply as JSON."""
    arrays = {"prompt_ids": got.prompt_ids, "output_ids": got.output_ids, "logprobs": got.logprobs}
    return {
        "message": got.message,
        "finish": got.finish,
        "usage": [got.usage.prompt_tokens, got.usage.completion_tokens],
        "counted": got.counted,
        "texts": got.texts,
        **{name: None if values is None else list(values) for name, values in arrays.items()},
    }


def _played(session: Session, found: Mapping[str, Any]) -> WireReply:
    session.counts[RETRIED] += found["retries"]
    if (told := found.get("refusal")) is not None:
        if told["stop"] == Stop.CONTEXT_OVERFLOW:
            raise session.overflow(told["message"])
        session.complain(told["message"])
        raise Refusal(told["status"], told["message"])
    raise_fault(found)
    reply = found["reply"]
    ids = {
        name: None if reply[name] is None else array("i", reply[name])
        for name in ("prompt_ids", "output_ids")
    }
    return WireReply(
        message=reply["message"],
        finish=reply["finish"],
        usage=Usage(*reply["usage"]),
        counted=reply["counted"],
        logprobs=None if reply["logprobs"] is None else array("f", reply["logprobs"]),
        texts=tuple(reply["texts"]),
        **ids,
    )

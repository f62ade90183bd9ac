"""The gateway: where every model call of every agent passes, and is recorded to the token.

Agents need a base URL and a key. `Gateway.open` makes a session for one rollout; its `endpoint`
is handed to an agent; the agent's calls are answered by the upstream that their role is routed
to; `Session.close` hands over every call as a `Step`, with ids, logprobs, parent and provenance.

    server.py      the HTTP server;  answering.py what happens to a call, and when it fails
    address.py     what a request's path, query and headers ask for;  counting.py token counts
    listening.py   where it listens;  control.py its own API, for trainers that run it alone
    session.py     one rollout: key, limits, record
    routing.py     roles: hold, drain, route, release
    calls.py       a call in no particular wire format; exchange.py a call being answered;
                   reply.py its HTTP answer, whole or streamed
    tree.py        the token tree (pure); canonical.py says when two messages are the same
    tokens.py      answers from a token upstream; rendering.py a renderer in use
    wire.py        answers from any OpenAI-compatible server; wire_reply.py reads them,
                   wire_record.py judges their ids
    taping.py      a server's answers recorded, or played back
    dialects/      wire formats;  renderers/  chat templates

This package's names are imported on first use: the server needs aiohttp, which costs start-up.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["Gateway", "Renderer", "Session", "SessionRecord", "load_renderer"]

if TYPE_CHECKING:
    from rllm_core.gateway.renderers import Renderer, load_renderer
    from rllm_core.gateway.server import Gateway
    from rllm_core.gateway.session import Session, SessionRecord

_HOMES = {
    "Gateway": "server",
    "Renderer": "renderers",
    "Session": "session",
    "SessionRecord": "session",
    "load_renderer": "renderers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

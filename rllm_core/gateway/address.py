"""What a request asks for, as its path, query and headers tell: session, agent, dialect, key."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from attrs import frozen

from rllm_core.gateway.dialects import DIALECTS, Dialect, Target, target_of
from rllm_core.gateway.dialects.gemini import Gemini

__all__ = ["Address", "models_body"]

_PATH = re.compile(r"/sessions/(?P<session>[^/]+)(?:/as/(?P<agent>[^/]+))?(?:/(?P<rest>.*))?")
_VERSION = re.compile(r"^(?:api(?:/|$))?(?:v1(?:beta|alpha)?(?:/|$))*")
"""Clients add a version to a base URL that may end in one already."""


@frozen
class Address:
    """A request's address. `rest` is the path after the session and the API's version.

    `target` is what a POST there asks, None where nothing is served; `errors` the dialect in
    which the caller reads errors.
    """

    session: str | None
    agent: str
    rest: str
    target: Target | None
    errors: Dialect
    key: str

    @classmethod
    def of(cls, request: web.Request) -> "Address":
        """The address of a request."""
        found = _PATH.fullmatch(request.rel_url.raw_path)
        path = (found["rest"] or "") if found else request.path.lstrip("/")
        rest = unquote(_VERSION.sub("", path))
        target = target_of(rest, request.query)
        return cls(
            session=found["session"] if found else None,
            agent=unquote((found and found["agent"]) or "policy"),
            rest=rest,
            target=target,
            errors=target.dialect if target else _family(request, path),
            key=_key(request),
        )


def _family(request: web.Request, path: str) -> Dialect:
    """Whose client this is, where the path alone does not name a dialect."""
    if "v1beta" in path or "x-goog-api-key" in request.headers:
        return Gemini()
    if "anthropic-version" in request.headers:
        return DIALECTS["messages"]
    return DIALECTS["chat/completions"]


def _key(request: web.Request) -> str:
    """The key, wherever the dialect's clients put it."""
    headers = request.headers
    bearer = headers.get("Authorization", "").removeprefix("Bearer ")
    return (
        bearer
        or headers.get("x-api-key", "")
        or headers.get("x-goog-api-key", "")
        or request.query.get("key", "")
    )


def models_body(
    errors: Dialect, windows: Mapping[str, int | None], name: str
) -> dict[str, Any] | None:
    """The model list, or the model `name`, as the caller's API shows it; None: no such model.

    A session's models are its roles; `windows` has their context windows, where known.
    """
    if isinstance(errors, Gemini):
        entries = {role: _gemini_model(role, window) for role, window in windows.items()}
        listed: dict[str, Any] = {"models": list(entries.values())}
    else:
        entries = {role: _model(role, window) for role, window in windows.items()}
        roles = list(windows)
        listed = {"object": "list", "data": list(entries.values()), "has_more": False}
        listed |= {"first_id": roles[0], "last_id": roles[-1]}
    return entries.get(name) if name else listed


def _model(role: str, window: int | None) -> dict[str, Any]:
    """A model as OpenAI, vLLM (`max_model_len`) and Anthropic tell of it, in one."""
    entry = {"id": role, "object": "model", "created": 0, "owned_by": "rllm"}
    entry |= {"type": "model", "display_name": role, "created_at": "1970-01-01T00:00:00Z"}
    return entry if window is None else {**entry, "max_model_len": window}


def _gemini_model(role: str, window: int | None) -> dict[str, Any]:
    methods = ["generateContent", "streamGenerateContent", "countTokens"]
    entry: dict[str, Any] = {"name": f"models/{role}", "displayName": role}
    entry |= {"version": "1", "supportedGenerationMethods": methods}
    return entry if window is None else {**entry, "inputTokenLimit": window}

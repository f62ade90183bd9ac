"""The HTTP server: sessions by path, keys, dialects, roles."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from rllm_core.errors import ConfigError
from rllm_core.gateway.address import Address, models_body
from rllm_core.gateway.answering import answer_call, answer_empty, within_bounds
from rllm_core.gateway.calls import Call, Refusal
from rllm_core.gateway.continuing import go_on
from rllm_core.gateway.counting import count_prompt
from rllm_core.gateway.dialects import Dialect, Target
from rllm_core.gateway.exchange import Exchange
from rllm_core.gateway.listening import Listening
from rllm_core.gateway.renderers.protocol import Renderer
from rllm_core.gateway.rendering import Rendering
from rllm_core.gateway.reply import AgentGone, Reply
from rllm_core.gateway.routing import Route
from rllm_core.gateway.session import Limits, Session
from rllm_core.gateway.wire import Wire
from rllm_core.upstream import Upstream, WireUpstream
from rllm_core.upstream.cassette import Tape

__all__ = ["Gateway"]

_HUNG_UP = 499
"""The status that servers use among themselves for a client that closed its connection."""


class Gateway:
    """One server for all rollouts of a process.

    `port` 0 takes a free one. `keepalive` is how many seconds a streamed call may sample before
    the first sign of life is written (and between such signs). `max_body` is in bytes.
    `unix_socket` and `public_url` are explained at `Listening`. `extensions` add further paths to
    the server when it starts. A `tape` records what upstreams are asked, or answers in
    their place.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        unix_socket: Path | None = None,
        public_url: str | None = None,
        keepalive: float = 10.0,
        max_body: int = 64 << 20,
        tape: Tape | None = None,
    ) -> None:
        self.listening = Listening(host, port, unix_socket, public_url)
        self.port = port
        self.extensions: list[Callable[[web.Application], None]] = []
        self.keepalive = keepalive
        self.max_body = max_body
        self._routes: dict[str, Route] = {}
        self._renderings: dict[int, Rendering] = {}
        self._sessions: dict[str, Session] = {}
        self._runner: web.AppRunner | None = None
        self._tape = tape
        self._wire = Wire(tape)

    @property
    def url(self) -> str:
        """Where agents reach the gateway, once started."""
        return self.listening.url(self.port)

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The open sessions."""
        return tuple(self._sessions.values())

    def find(self, session_id: str) -> Session | None:
        """The open session of this id."""
        return self._sessions.get(session_id)

    async def start(self) -> None:
        """Listen. ConfigError where the address cannot be had."""
        app = web.Application(client_max_size=self.max_body)
        for extend in self.extensions:
            extend(app)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1
        )
        await self._runner.setup()
        try:
            self.port = await self.listening.start(self._runner)
        except ConfigError:
            await self._runner.cleanup()
            raise

    async def close(self) -> None:
        """Close every session and stop listening."""
        for session in tuple(self._sessions.values()):
            await session.close()
        await self._wire.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self.listening.clean()

    def route(
        self,
        role: str,
        upstream: Upstream | WireUpstream,
        *,
        renderer: Renderer | None = None,
        model: str = "",
    ) -> None:
        """Send a role's calls to `upstream` from now on.

        A token upstream needs a renderer; the previous one is kept when it is None. `model` is
        the name that is recorded.
        """
        rendering = None
        if renderer is not None:  # one lock a renderer, however many roles use it
            rendering = self._renderings.setdefault(id(renderer), Rendering(renderer))
        if self._tape is not None and not isinstance(upstream, WireUpstream):
            upstream = self._tape.wrap(role, upstream)
        self._routes.setdefault(role, Route(role)).point(upstream, rendering, model)

    async def hold(self, role: str) -> None:
        """Let new calls of the role wait (they never fail for it) until `release`."""
        self._route(role).hold()

    async def drain(self, role: str, timeout: float) -> None:  # noqa: ASYNC109 - awaited as such
        """Wait for the role's calls in flight; RolloutTimeout after `timeout` seconds."""
        await self._route(role).drain(timeout)

    def release(self, role: str) -> None:
        """Let the role's calls go on."""
        self._route(role).release()

    def open(
        self,
        session_id: str,
        *,
        roles: Sequence[str] = ("policy",),
        sampling: Mapping[str, Any] | None = None,
        seed: int | None = None,
        max_calls: int | None = None,
        max_tokens_total: int | None = None,
        deadline: float = float("inf"),
    ) -> Session:
        """A session for one rollout.

        `sampling` (temperature, top_p, top_k, max_tokens) is enforced over what agents ask;
        max_tokens is a cap. `max_tokens_total` bounds all sampled tokens; `deadline` is on
        `time.monotonic()`'s clock.
        """
        if not re.fullmatch(r"[\w.~-]+", session_id):
            raise ConfigError(f"a session id is part of a URL and cannot be {session_id!r}")
        if session_id in self._sessions:
            raise ConfigError(f"the session {session_id!r} is open already")
        for role in roles:
            self._route(role)
        session = Session(
            session_id,
            self.url,
            roles,
            sampling=sampling or {},
            seed=seed,
            limits=Limits(max_calls, max_tokens_total, deadline),
            forget=self._sessions.pop,
        )
        self._sessions[session_id] = session
        return session

    def _route(self, role: str) -> Route:
        if role not in self._routes:
            known = ", ".join(self._routes) or "none"
            raise ConfigError(
                f"no upstream is routed for the role {role!r}", remedy=f"routed roles: {known}"
            )
        return self._routes[role]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        address = Address.of(request)
        if request.method == "HEAD" or (address.rest == "" and request.method == "GET"):
            return web.json_response({"status": "ok"})
        try:
            return await self._serve(request, address)
        except Refusal as refusal:
            return _refused(address.errors, refusal)
        except AgentGone:  # there is nobody to answer: no error of the server's, nothing to log
            return web.Response(status=_HUNG_UP)

    async def _serve(self, request: web.Request, address: Address) -> web.StreamResponse:
        if address.session is None:
            raise Refusal(404, f"no such path: {request.path}; calls go to /sessions/ID/v1/…")
        session = self._session(address.session, address.key)
        if request.headers.get("Upgrade", "").lower() == "websocket":  # Codex then comes by HTTP
            raise Refusal(426, "this gateway speaks HTTP only: send the request as a POST")
        if request.method == "GET":
            return self._models(session, address)
        if address.target is None or request.method != "POST":
            raise Refusal(404, f"this gateway does not serve {request.method} /{address.rest}")
        return await self._call(request, session, address.agent, address.target)

    def _session(self, session_id: str, key: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise Refusal(400, f"session {session_id} is unknown or closed: its rollout has ended")
        if key != session.key:
            raise Refusal(401, f"the API key does not open session {session_id}")
        return session

    def _models(self, session: Session, address: Address) -> web.Response:
        """The model list, or one model: a session's models are its roles."""
        kind, _, name = address.rest.partition("/")
        if kind != "models":
            raise Refusal(404, f"this gateway does not serve GET /{address.rest}")
        windows = {role: self._routes[role].window for role in session.roles}
        body = models_body(address.errors, windows, name)
        if body is None:
            known = ", ".join(session.roles)
            raise Refusal(404, f"no model {name!r}; this session has: {known}")
        return web.json_response(body)

    async def _call(
        self, request: web.Request, session: Session, agent: str, target: Target
    ) -> web.StreamResponse:
        dialect = target.dialect
        call = await self._parsed(request, dialect)
        if call.local:
            exchange = Exchange("warmup", session, self._routes[session.roles[0]], agent, call)
            return await answer_empty(exchange, Reply(request, dialect, exchange, self.keepalive))
        call_id = "" if target.counted else session.admit()
        role = session.role_of(call.model)
        if role != call.model and call.model in self._routes:
            raise Refusal(403, f"this session's key does not open the role {call.model!r}")
        go_on(session, call, call_id)
        exchange = Exchange(call_id, session, self._routes[role], agent, call)
        if target.counted:
            tokens = await within_bounds(session, count_prompt(exchange))
            return web.json_response(target.counted(tokens))
        session.counts.update(f"calls whose {field} was ignored" for field in call.ignored)
        reply = Reply(request, dialect, exchange, self.keepalive)
        return await answer_call(exchange, reply, self._wire)

    async def _parsed(self, request: web.Request, dialect: Dialect) -> Call:
        body = await self._body(request)
        try:
            return dialect.parse(body)
        except RecursionError:
            raise Refusal(400, "the request is nested too deeply") from None

    async def _body(self, request: web.Request) -> Any:
        try:
            return json.loads(await request.read())
        except web.HTTPRequestEntityTooLarge:
            raise Refusal(413, f"the request is larger than {self.max_body >> 20} MiB") from None
        except (ValueError, RecursionError) as error:
            raise Refusal(400, f"the request body is not JSON: {error}") from None


def _refused(dialect: Dialect, refusal: Refusal) -> web.Response:
    headers = {"x-should-retry": "false"} if refusal.final else None
    return web.json_response(dialect.error(refusal), status=refusal.status, headers=headers)

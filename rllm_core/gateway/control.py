"""The gateway's own API, for trainers that run it alone: sessions, workers and roles over HTTP.

    POST   /sessions                 {id?, roles?, sampling?, seed?, max_calls?, max_tokens_total?,
                                      deadline?}  →  201 {id, key, base_url, root_url, model}
    GET    /sessions                 →  {"sessions": [{id, calls}]}
    GET    /sessions/ID              →  {id, steps, stop, errors, counts}
    DELETE /sessions/ID              →  the same, for the last time: the session is closed
    GET    /workers                  →  {"workers": {name: {inflight, sessions, faults, resting}}}
    PUT    /workers/NAME             {url, version?}: add it, or put it in the place of that name
    DELETE /workers/NAME             its sessions move
    POST   /roles/ROLE/hold          new calls wait (while weights are switched)
    POST   /roles/ROLE/release       they go on

`steps` are `rllm_core.types.Step` as JSON: messages, reply, ids, logprobs, parent, versions. An
error is {"error": {"message": …}} with 400, 401, 404 or 409. Where there is an admin key, each
request carries it (Authorization: Bearer); a session's own key opens none of this.
"""

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web
from attrs import Factory, define, field, frozen

from rllm_core.errors import ConfigError, RllmError
from rllm_core.gateway.session import Session, SessionRecord
from rllm_core.serialize import from_json, to_json
from rllm_core.upstream import Upstream
from rllm_core.upstream.pool import WorkerPool

if TYPE_CHECKING:
    from rllm_core.gateway.server import Gateway

__all__ = ["Control", "NewSession"]

Handler = Callable[[web.Request], Awaitable[web.Response]]
Connect = Callable[[str, int], Awaitable[Upstream]]


@frozen
class NewSession:
    """The body of `POST /sessions`; `deadline` is in seconds from now. See `Gateway.open`."""

    id: str | None = None
    roles: tuple[str, ...] = ("policy",)
    sampling: Mapping[str, Any] = Factory(dict)
    seed: int | None = None
    max_calls: int | None = None
    max_tokens_total: int | None = None
    deadline: float | None = None


@frozen
class _NewWorker:
    url: str
    version: int = 0


class _Refused(Exception):  # noqa: N818 - an answer
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@define(eq=False)
class Control:
    """The API of one gateway; `attach` it before the gateway starts.

    `key` None lets everybody in. `pool` is the worker pool that the workers' paths are about, and
    `connect` makes an upstream of a worker's URL and weight version.
    """

    gateway: "Gateway"
    key: str | None = field(default=None, repr=False)
    pool: WorkerPool | None = None
    connect: Connect | None = None

    def attach(self) -> None:
        """Let the gateway answer these paths too."""
        self.gateway.extensions.append(self._add_to)

    def _add_to(self, app: web.Application) -> None:
        for method, path, handler in (
            ("POST", "/sessions", self._open),
            ("GET", "/sessions", self._list),
            ("GET", "/sessions/{id}", self._read),
            ("DELETE", "/sessions/{id}", self._close),
            ("GET", "/workers", self._workers),
            ("PUT", "/workers/{name}", self._put_worker),
            ("DELETE", "/workers/{name}", self._remove_worker),
            ("POST", "/roles/{role}/{what:hold|release}", self._gate),
        ):
            app.router.add_route(method, path, self._guarded(handler))

    def _guarded(self, handler: Handler) -> Handler:
        """The boundary: keys are checked, and what is wrong is told as JSON."""

        async def guarded(request: web.Request) -> web.Response:
            try:
                if not self._admits(request.headers.get("Authorization", "")):
                    return _error(401, "this needs the gateway's admin key")
                return await handler(request)
            except _Refused as refused:
                return _error(refused.status, str(refused))
            except ConfigError as error:
                return _error(400, str(error))
            except RllmError as error:
                return _error(502, str(error))

        return guarded

    def _admits(self, header: str) -> bool:
        given = header.removeprefix("Bearer ").encode()
        return self.key is None or secrets.compare_digest(given, self.key.encode())

    async def _open(self, request: web.Request) -> web.Response:
        asked = await _body(request, NewSession)
        if asked.id is not None and self.gateway.find(asked.id) is not None:
            raise _Refused(409, f"the session {asked.id!r} is open already")
        wrong = [k for k, v in asked.sampling.items() if isinstance(v, bool) or not _number(v)]
        if wrong:
            raise _Refused(400, f"sampling.{wrong[0]} must be a number")
        within = float("inf") if asked.deadline is None else time.monotonic() + asked.deadline
        session = self.gateway.open(
            asked.id or secrets.token_hex(8),
            roles=asked.roles,
            sampling=asked.sampling,
            seed=asked.seed,
            max_calls=asked.max_calls,
            max_tokens_total=asked.max_tokens_total,
            deadline=within,
        )
        endpoint = session.endpoint(role=asked.roles[0])
        told = {
            "id": session.id,
            "key": session.key,
            "base_url": endpoint.base_url,
            "root_url": endpoint.root_url,
            "model": endpoint.model,
            "roles": list(session.roles),
        }
        return web.json_response(told, status=201)

    async def _list(self, _: web.Request) -> web.Response:
        listed = [{"id": s.id, "calls": len(s.tree.nodes)} for s in self.gateway.sessions]
        return web.json_response({"sessions": listed})

    def _session(self, request: web.Request) -> Session:
        name = request.match_info["id"]
        session = self.gateway.find(name)
        if session is None:
            raise _Refused(404, f"no session {name!r} is open")
        return session

    async def _read(self, request: web.Request) -> web.Response:
        session = self._session(request)
        return _record(session.id, session.record())

    async def _close(self, request: web.Request) -> web.Response:
        session = self._session(request)
        return _record(session.id, await session.close())

    def _pool(self) -> WorkerPool:
        if self.pool is None:
            raise _Refused(404, "this gateway was started without workers (--worker)")
        return self.pool

    async def _workers(self, _: web.Request) -> web.Response:
        return web.json_response({"workers": self._pool().state()})

    async def _put_worker(self, request: web.Request) -> web.Response:
        pool, asked = self._pool(), await _body(request, _NewWorker)
        if self.connect is None:
            raise _Refused(404, "workers cannot be added to this gateway")
        replaced = pool.add(
            request.match_info["name"], await self.connect(asked.url, asked.version)
        )
        if (close := getattr(replaced, "close", None)) is not None:
            await close()
        return web.json_response({"workers": pool.state()})

    async def _remove_worker(self, request: web.Request) -> web.Response:
        pool, name = self._pool(), request.match_info["name"]
        if name not in pool.state():
            raise _Refused(404, f"there is no worker {name!r}")
        await pool.remove(name)
        return web.json_response({"workers": pool.state()})

    async def _gate(self, request: web.Request) -> web.Response:
        role, what = request.match_info["role"], request.match_info["what"]
        if what == "hold":
            await self.gateway.hold(role)
        else:
            self.gateway.release(role)
        return web.json_response({"role": role, "held": what == "hold"})


def _number(value: Any) -> bool:
    return isinstance(value, (int, float))


async def _body(request: web.Request, cls: Any) -> Any:
    """The request's JSON as `cls`; an empty body is an empty object."""
    import cattrs

    try:
        data = json.loads(await request.read() or b"{}")
        if not isinstance(data, dict):
            raise _Refused(400, "the request must be a JSON object")
        return from_json(cls, data)
    except (ValueError, TypeError, RecursionError, cattrs.BaseValidationError) as error:
        told = [str(error)]
        if isinstance(error, cattrs.BaseValidationError):
            told = cattrs.transform_error(error)
        raise _Refused(400, f"the request cannot be read: {'; '.join(told)}") from None


def _record(session_id: str, record: SessionRecord) -> web.Response:
    told = {
        "id": session_id,
        "steps": [to_json(step) for step in record.steps],
        "stop": record.stop,
        "errors": [to_json(error) for error in record.errors],
        "counts": dict(record.counts),
    }
    return web.Response(text=json.dumps(told), content_type="application/json")


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)

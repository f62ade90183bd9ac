"""`rllm gateway serve`: the gateway alone, for trainers that are not ours."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from rllm_core.errors import ConfigError

if TYPE_CHECKING:
    from rllm_core.gateway import Gateway
    from rllm_core.upstream import WireUpstream
    from rllm_core.upstream.completions import CompletionsUpstream
    from rllm_core.upstream.pool import WorkerPool

__all__ = ["gateway"]

ADMIN_KEY = "RLLM_GATEWAY_KEY"


@click.group()
def gateway() -> None:
    """Run the gateway by itself."""


@gateway.command()
@click.option("--model", required=True, metavar="NAME", help="The policy, as in `rllm eval`.")
@click.option("--base-url", metavar="URL", help="The policy's OpenAI-compatible server.")
@click.option(
    "--worker", "workers", multiple=True, metavar="URL",
    help="A vLLM or SGLang server of the policy, token in, token out; may be repeated.",
)  # fmt: skip
@click.option("--renderer", metavar="DIR", help="The policy's model directory, for --worker.")
@click.option("--processed-logprobs", is_flag=True, help="Workers' logprobs are processed ones.")
@click.option("--context-window", type=click.IntRange(1), metavar="N", help="In tokens.")
@click.option(
    "--route", "routes", multiple=True, metavar="ROLE=MODEL", help="Another role's model."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8787, show_default=True, help="Port; 0 takes a free one.")
@click.option("--unix-socket", metavar="PATH", help="Listen on this socket instead.")
@click.option("--public-url", metavar="URL", help="What agents are told, behind a proxy.")
@click.option(
    "--admin-key-env", default=ADMIN_KEY, show_default=True, metavar="VAR",
    help="The variable that holds the key for opening sessions; must be set unless on loopback.",
)  # fmt: skip
def serve(**given: Any) -> None:
    """Serve sessions to agents, and their tokens to whoever trains.

    POST /sessions opens one and answers {id, key, base_url, model}; an agent takes the base URL
    and key. GET /sessions/ID reads its steps with ids and logprobs, DELETE closes it.
    """
    routes = _routes(given.pop("routes"))
    variable = given.pop("admin_key_env")
    settings = _Serving(routes=routes, admin_key=os.environ.get(variable) or None, **given)
    settings.check(variable)
    asyncio.run(_serve(settings))


@frozen
class _Serving:
    """What was asked for."""

    model: str
    base_url: str | None
    workers: Sequence[str]
    renderer: str | None
    processed_logprobs: bool
    context_window: int | None
    routes: Mapping[str, str]
    host: str
    port: int
    unix_socket: str | None
    public_url: str | None
    admin_key: str | None

    def check(self, variable: str) -> None:
        """Raise ConfigError for what cannot work together."""
        from rllm_core.gateway.listening import is_loopback

        if self.workers and self.base_url:
            raise ConfigError("--worker and --base-url both name the policy's server")
        if not self.workers and (self.renderer or self.processed_logprobs):
            flag = "--renderer" if self.renderer else "--processed-logprobs"
            raise ConfigError(f"{flag} has no effect without --worker")
        private = self.unix_socket is not None or is_loopback(self.host)
        if (not private or self.public_url) and not self.admin_key:
            raise ConfigError(
                "others can reach this gateway, and it has no admin key",
                remedy=f"export {variable}=…   or listen on 127.0.0.1 without --public-url",
            )


def _routes(words: Sequence[str]) -> dict[str, str]:
    """`ROLE=MODEL` words as a mapping."""
    found: dict[str, str] = {}
    for word in words:
        role, equals, model = word.partition("=")
        if not equals or not role or not model or role == "policy" or role in found:
            raise ConfigError(
                f"--route {word}: a role once, other than policy", remedy="--route judge=openai/…"
            )
        found[role] = model
    return found


async def _serve(settings: _Serving) -> None:
    """Listen until the process is told to stop."""
    from rllm_core.gateway import Gateway
    from rllm_core.gateway.control import Control

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = Gateway(
        host=settings.host,
        port=settings.port,
        unix_socket=Path(settings.unix_socket) if settings.unix_socket else None,
        public_url=settings.public_url,
    )
    async with AsyncExitStack() as stack:
        pool = await _route_policy(server, settings, stack)
        for role, name in settings.routes.items():
            server.route(role, _wire(name))

        async def connect(url: str, version: int) -> "CompletionsUpstream":
            return await _worker(settings, url, version)

        Control(server, settings.admin_key, pool, connect if pool else None).attach()
        stack.push_async_callback(server.close)
        await server.start()
        _tell(server, settings)
        await stop.wait()
        click.echo("stopping", err=True)


def _tell(server: "Gateway", settings: _Serving) -> None:
    listening = server.listening
    place = f"unix socket {listening.unix_socket}" if listening.unix_socket else server.url
    key = ' -H "Authorization: Bearer $KEY"' if settings.admin_key else ""
    socket = f" --unix-socket {listening.unix_socket}" if listening.unix_socket else ""
    click.echo(f"gateway on {place}")
    click.echo(f"open a session: curl -X POST{socket}{key} {server.url}/sessions")


async def _route_policy(
    server: "Gateway", settings: _Serving, stack: AsyncExitStack
) -> "WorkerPool | None":
    from rllm_core.gateway import load_renderer
    from rllm_core.upstream.pool import WorkerPool

    if not settings.workers:
        server.route("policy", _wire(settings.model, settings.base_url, settings.context_window))
        return None
    renderer = load_renderer(settings.model, directory=settings.renderer or settings.model)
    pool = WorkerPool()
    stack.push_async_callback(pool.close)
    for number, url in enumerate(settings.workers):
        pool.add(f"worker{number}", await _worker(settings, url, 0))
    pool.start()
    server.route("policy", pool, renderer=renderer, model=settings.model)
    return pool


async def _worker(settings: _Serving, url: str, version: int) -> "CompletionsUpstream":
    """A worker under whatever name it serves the model: hot-loaded adapters have their own."""
    from rllm_core.providers import checked_url
    from rllm_core.upstream.completions import CompletionsUpstream

    return await CompletionsUpstream.connect(
        checked_url(url),
        context_window=settings.context_window,
        version=version,
        processed_logprobs=settings.processed_logprobs,
    )


def _wire(name: str, base_url: str | None = None, window: int | None = None) -> "WireUpstream":
    from rllm_core.providers import Wire, resolve_model

    made = resolve_model(name, base_url=base_url)
    if not isinstance(made, Wire):
        raise ConfigError(
            f"'{name}' is a model that a backend loads, and the gateway alone has none",
            remedy="name a server: --base-url URL, or --worker URL for token in, token out",
        )
    return made.upstream(context_window=window)

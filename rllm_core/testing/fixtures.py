"""pytest fixtures: scripted models, a gateway, an awkward tokenizer, a home without network.

Load them in the `conftest.py` at the top of your tests:

    pytest_plugins = ["rllm_core.testing.fixtures"]

or with `pytest -p rllm_core.testing.fixtures`.
"""

import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from rllm_core.gateway import Gateway
    from rllm_core.gateway.renderers import ChatMLRenderer
    from rllm_core.testing.scripted import ScriptedModel
    from rllm_core.testing.tokenizer import AmbiguousTokenizer
    from rllm_core.testing.upstream import ScriptedUpstream

__all__ = [
    "ambiguous_tokenizer",
    "gateway",
    "renderer",
    "rllm_home",
    "scripted_model",
    "scripted_upstream",
]

_LOOPBACK = ("127.", "::1", "localhost")


@pytest.fixture
def rllm_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty RLLM_HOME, and no way to any other machine: connecting to one raises OSError."""
    home = tmp_path / "rllm-home"
    monkeypatch.setenv("RLLM_HOME", str(home))
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))
    monkeypatch.setattr(socket, "getaddrinfo", functools.partial(_resolve, socket.getaddrinfo))
    return home


def _guarded(connect: Callable[[socket.socket, Any], Any]) -> Callable[[socket.socket, Any], Any]:
    def guarded(sock: socket.socket, address: Any) -> Any:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            _refuse_others(str(address[0]))
        return connect(sock, address)

    return guarded


def _resolve(original: Callable[..., Any], host: Any, *arguments: Any, **more: Any) -> Any:
    text = host.decode() if isinstance(host, bytes) else host
    _refuse_others("" if text is None else str(text))
    return original(host, *arguments, **more)


def _refuse_others(host: str) -> None:
    if host and not host.startswith(_LOOPBACK):
        raise OSError(f"a test with the fixture rllm_home reaches for {host!r}")


@pytest.fixture
def ambiguous_tokenizer() -> "AmbiguousTokenizer":
    """A tokenizer in which one text has many tokenisations, on purpose."""
    from rllm_core.testing.tokenizer import AmbiguousTokenizer

    return AmbiguousTokenizer()


@pytest.fixture
def renderer(ambiguous_tokenizer: "AmbiguousTokenizer") -> "ChatMLRenderer":
    """ChatML over the ambiguous tokenizer."""
    from rllm_core.gateway.renderers import ChatMLRenderer

    return ChatMLRenderer(ambiguous_tokenizer)


@pytest.fixture
def scripted_upstream(renderer: "ChatMLRenderer") -> Callable[..., "ScriptedUpstream"]:
    """Call it with replies: tokens from a script; see `ScriptedUpstream`."""
    from rllm_core.testing.upstream import ScriptedUpstream

    return lambda replies, **more: ScriptedUpstream(replies, renderer, **more)


@pytest_asyncio.fixture
async def gateway() -> "AsyncIterator[Gateway]":
    """A gateway that listens; `gateway.route(…)` gives it models."""
    from rllm_core.gateway import Gateway

    server = Gateway()
    await server.start()
    yield server
    await server.close()


@pytest.fixture
def scripted_model() -> "Iterator[Callable[..., ScriptedModel]]":
    """Call it with replies: a server with `base_url` and `requests`; see `ScriptedModel`."""
    from rllm_core.testing.scripted import ScriptedModel

    with contextlib.ExitStack() as stack:
        yield lambda replies: stack.enter_context(ScriptedModel(replies))

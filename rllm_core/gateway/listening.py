"""Where the gateway listens: a TCP address or a unix socket, and the URL that agents are told."""

import os
import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web
from attrs import frozen

from rllm_core.errors import ConfigError

__all__ = ["Listening", "is_loopback"]


@frozen
class Listening:
    """An address to listen on.

    `port` 0 takes a free one. With `unix_socket` there is no port: its file's permissions
    (the owner's alone) decide who may connect. `public_url` is what agents are told instead, where
    they reach the gateway through a proxy, a bridge or a tunnel.
    """

    host: str = "127.0.0.1"
    port: int = 0
    unix_socket: Path | None = None
    public_url: str | None = None

    @property
    def private(self) -> bool:
        """Whether nobody but this machine's own users can connect."""
        return self.unix_socket is not None or is_loopback(self.host)

    def url(self, port: int) -> str:
        """What agents are told; a client of a unix socket puts its own transport under it."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        if self.unix_socket is not None:
            return "http://localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}"

    async def start(self, runner: web.AppRunner) -> int:
        """Listen; returns the port (0 for a socket). ConfigError where that cannot be."""
        try:
            if self.unix_socket is not None:
                await _listen_on_socket(runner, self.unix_socket)
                return 0
            await web.TCPSite(runner, self.host, self.port, backlog=1024).start()
        except OSError as error:
            place = self.unix_socket or f"{self.host}:{self.port}"
            remedy = "choose another path" if self.unix_socket else "choose another port, or 0"
            raise ConfigError(
                f"the gateway cannot listen on {place}: {error.strerror or error}", remedy=remedy
            ) from error
        port: int = runner.addresses[0][1]
        return port

    def clean(self) -> None:
        """Remove the socket's file."""
        if self.unix_socket is not None:
            with suppress(OSError):
                self.unix_socket.unlink()


async def _listen_on_socket(runner: web.AppRunner, path: Path) -> None:
    """A stale socket file is replaced, one that somebody listens on is not."""
    if _answers(path):
        raise OSError("another process listens there")
    before = os.umask(0o177)
    try:
        await web.UnixSite(runner, path, backlog=1024).start()
    finally:
        os.umask(before)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(path)) == 0


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

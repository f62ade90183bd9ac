"""Messages between the backend and its worker: a length (8 bytes), then a pickle.

Both ends are this package in processes of the same user, one the parent of the other, over
a socket pair that nobody else can reach: pickle is safe here, and carries arrays as they are.

    parent → worker   (call id, method, arguments)
    worker → parent   (call id, "result", value) | (call id, "error", Refusal)
                      (0, "pieces", [Piece, …]) | (0, "log", text)
"""

import asyncio
import pickle
import socket
import struct
from typing import Any, NamedTuple

__all__ = ["Piece", "Refusal", "pack", "read", "receive"]

_LENGTH = struct.Struct(">Q")


class Piece(NamedTuple):
    """Tokens of one completion, as the worker sends them."""

    call: int
    ids: list[int]
    logprobs: list[float]
    version: int
    finish: str | None


class Refusal(NamedTuple):
    """An error in the worker: the category of `rllm_core.errors`, and what to say."""

    category: str
    message: str
    remedy: str | None
    detail: str


def pack(message: Any) -> bytes:
    """One message as it travels."""
    body = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(body)) + body


async def read(stream: asyncio.StreamReader) -> Any:
    """The next message; `asyncio.IncompleteReadError` when the other end is gone."""
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    return pickle.loads(await stream.readexactly(length))  # noqa: S301 - see the module


def receive(connection: socket.socket) -> Any:
    """The next message, blocking; `EOFError` when the other end is gone."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return pickle.loads(_exactly(connection, length))  # noqa: S301 - see the module


def _exactly(connection: socket.socket, size: int) -> bytearray:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        got = connection.recv_into(view)
        if got == 0:
            raise EOFError
        view = view[got:]
    return buffer

"""What a wire format must be able to do."""

from typing import Any, Protocol

from rllm_core.gateway.calls import Answer, Call, Delta, Refusal
from rllm_core.types import Usage

__all__ = ["Dialect", "StreamForm"]


class StreamForm(Protocol):
    """One streamed answer on its way out: each method gives the bytes to write."""

    def start(self, usage: Usage | None) -> bytes:
        """Before the first delta; `usage` is None where it is not known yet."""
        ...

    def delta(self, delta: Delta) -> bytes:
        """One piece of the reply."""
        ...

    def finish(self, answer: Answer) -> bytes:
        """After the last delta."""
        ...

    def error(self, refusal: Refusal) -> bytes:
        """Instead of the rest, when the stream has begun already."""
        ...


class Dialect(Protocol):
    """One wire format."""

    @property
    def keepalive(self) -> bytes:
        """What may be written while a streamed call samples."""
        ...

    @property
    def media_type(self) -> str:
        """The content type of a stream."""
        ...

    def parse(self, body: Any) -> Call:
        """A request's JSON as a call; a `Refusal` of status 400 says what is wrong with it."""
        ...

    def reply(self, call: Call, answer: Answer) -> dict[str, Any]:
        """A whole answer."""
        ...

    def stream(self, call: Call, call_id: str, model: str) -> StreamForm:
        """A streamed answer."""
        ...

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """The body of an error."""
        ...

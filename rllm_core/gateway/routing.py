"""Where the calls of a role go, and how they wait while that changes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rllm_core.errors import ConfigError, RolloutTimeout
from rllm_core.gateway.rendering import Rendering
from rllm_core.upstream import Upstream, WireUpstream

__all__ = ["Route"]


class Route:
    """One role's upstream, and the gate in front of it.

    A held gate makes new calls wait; calls that passed it are in flight until they leave.
    """

    def __init__(self, role: str) -> None:
        self.role = role
        self.model = ""
        self._upstream: Upstream | WireUpstream | None = None
        self._rendering: Rendering | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._inflight = 0

    @property
    def upstream(self) -> Upstream | WireUpstream:
        """Where calls go now."""
        if self._upstream is None:
            raise ConfigError(f"the role {self.role!r} has no upstream yet")
        return self._upstream

    @property
    def window(self) -> int | None:
        """The context window in tokens, where it is known."""
        return None if isinstance(self.upstream, WireUpstream) else self.upstream.context_window

    @property
    def rendering(self) -> Rendering:
        """The renderer of a token upstream."""
        if self._rendering is None:
            raise ConfigError(f"the role {self.role!r} has no renderer")
        return self._rendering

    @property
    def held(self) -> bool:
        """Whether new calls wait."""
        return not self._open.is_set()

    def point(
        self, upstream: Upstream | WireUpstream, rendering: Rendering | None, model: str
    ) -> None:
        """Send calls to `upstream` from now on; a renderer or model left out is kept."""
        if not isinstance(upstream, WireUpstream) and (rendering or self._rendering) is None:
            raise ConfigError(
                f"the role {self.role!r} is routed to a token upstream without a renderer",
                remedy="pass renderer=load_renderer(MODEL_DIRECTORY) to Gateway.route",
            )
        self._upstream = upstream
        self._rendering = rendering or self._rendering
        named = upstream.model if isinstance(upstream, WireUpstream) else ""
        self.model = model or named or self.model

    def hold(self) -> None:
        """Let new calls wait."""
        self._open.clear()

    def release(self) -> None:
        """Let the calls that wait go on."""
        self._open.set()

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Wait at the gate, then be in flight for the length of the block."""
        await self.enter()
        try:
            yield
        finally:
            self.leave()

    async def enter(self) -> None:
        """Wait at the gate, then be in flight."""
        while self.held:
            await self._open.wait()
        self._inflight += 1
        self._idle.clear()

    def leave(self) -> None:
        """Be in flight no more."""
        self._inflight -= 1
        if not self._inflight:
            self._idle.set()

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - awaited as such
        """Wait until nothing is in flight; RolloutTimeout after `timeout` seconds."""
        started = time.monotonic()
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            waited = time.monotonic() - started
            raise RolloutTimeout(
                f"{self._inflight} calls of the role {self.role!r} were still in flight after "
                f"{waited:.1f} s"
            ) from None

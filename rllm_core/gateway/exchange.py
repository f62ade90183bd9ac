"""One call being answered: whose it is, where it goes, and when it began."""

import time

from attrs import field, frozen

from rllm_core.gateway.calls import Call
from rllm_core.gateway.routing import Route
from rllm_core.gateway.session import Session

__all__ = ["Exchange"]


@frozen(eq=False)
class Exchange:
    """What every part of the gateway that answers a call needs to know of it.

    `id` names the call to the agent and becomes the step's. `agent` is the named agent of the
    rollout that asks. `started` is in epoch seconds.
    """

    id: str
    session: Session
    route: Route
    agent: str
    call: Call
    started: float = field(factory=time.time)
    _clock: float = field(factory=time.monotonic)

    @property
    def model(self) -> str:
        """The model name that the reply carries: the one that was asked for."""
        return self.call.model or self.route.role

    @property
    def seconds(self) -> float:
        """How long the call has taken so far."""
        return time.monotonic() - self._clock

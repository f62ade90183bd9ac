"""One rollout at the gateway: its key, its limits, its tree, and what went wrong in it."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

from attrs import Factory, field, frozen

from rllm_core.errors import ConfigError
from rllm_core.gateway.calls import Refusal
from rllm_core.gateway.tree import Place, TokenTree
from rllm_core.types import ErrorRecord, Step, Stop, TokenIds
from rllm_core.upstream import Endpoint

__all__ = ["Limits", "Session", "SessionRecord"]

SAMPLING = frozenset({"temperature", "top_p", "top_k", "max_tokens"})
"""What a session may enforce."""

_CUT_SECONDS = 10.0


@frozen
class Limits:
    """What a session may use up. Tokens are sampled ones; `deadline` is monotonic time."""

    max_calls: int | None = None
    max_tokens_total: int | None = None
    deadline: float = float("inf")


@frozen
class SessionRecord:
    """What a session left behind.

    `steps` are its calls in the order they were answered; `stop` the typed reason for which
    calls were refused at the end, if they were; `errors` what upstreams did wrong; `counts` what
    was clamped, ignored, retried, superseded or not bridged, each under a sentence.
    """

    steps: tuple[Step, ...] = ()
    stop: Stop | None = None
    errors: tuple[ErrorRecord, ...] = ()
    counts: Mapping[str, int] = Factory(dict)


@frozen(eq=False)
class _Identity:
    id: str
    url: str
    roles: tuple[str, ...]
    key: str = field(factory=lambda: "rllm-" + secrets.token_urlsafe(24), repr=False)


class Session:
    """One rollout. Made by `Gateway.open`; ends with `close`."""

    def __init__(
        self,
        session_id: str,
        url: str,
        roles: Sequence[str],
        *,
        sampling: Mapping[str, Any],
        seed: int | None,
        limits: Limits,
        forget: Callable[[str, None], object],
    ) -> None:
        unknown = sorted(set(sampling) - SAMPLING)
        if unknown:
            raise ConfigError(
                f"the gateway cannot enforce {', '.join(unknown)}",
                remedy=f"it enforces: {', '.join(sorted(SAMPLING))}",
            )
        self._identity = _Identity(session_id, url, tuple(roles))
        self.sampling = {k: v for k, v in sampling.items() if v is not None}
        self.limits = limits
        self.tree = TokenTree()
        self.counts: Counter[str] = Counter()
        self.errors: list[ErrorRecord] = []
        self.stop: Stop | None = None
        self.closed = False
        self.instructed: set[str] = set()
        """Calls whose first message was an instruction for them alone."""
        self._seed = secrets.randbits(63) if seed is None else seed
        self._fixed_seed = seed is not None
        self._forget = forget
        self._calls = 0
        self._sampled = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def id(self) -> str:
        """The session's id, as in its URLs."""
        return self._identity.id

    @property
    def key(self) -> str:
        """The key that opens this session and no other."""
        return self._identity.key

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that the key opens; the first is the default."""
        return self._identity.roles

    def endpoint(self, agent: str = "policy", role: str = "policy") -> Endpoint:
        """Where the agent of this name sends its calls, and the model name for a role."""
        if role not in self.roles:
            raise ConfigError(
                f"session {self.id} does not open the role {role!r}",
                remedy=f"it opens: {', '.join(self.roles)}",
            )
        base = f"{self._identity.url}/sessions/{self.id}/as/{quote(agent, safe='')}/v1"
        return Endpoint(base, self.key, role)

    def role_of(self, model: str) -> str:
        """The role that a request's model name means; other names mean the default role."""
        if model in self.roles:
            return model
        if model:
            self.counts["calls that named another model, sent to the default role"] += 1
        return self.roles[0]

    def admit(self) -> str:
        """Count a call and give it an id, or refuse it."""
        if self.closed:
            raise Refusal(400, f"session {self.id} is closed: this rollout has ended")
        if self.limits.deadline <= time.monotonic():
            raise self.refuse(Stop.TIMEOUT, "the rollout's deadline has passed")
        limit = self.limits.max_calls
        if limit is not None and self._calls >= limit:
            raise self.refuse(Stop.CALL_LIMIT, f"this rollout's limit of {limit} calls is reached")
        if self.tokens_left() == 0:
            total = self.limits.max_tokens_total
            raise self.refuse(Stop.MAX_TOKENS, f"this rollout's {total} tokens are used up")
        self._calls += 1
        return f"{self.id}-{self._calls}"

    def refuse(self, stop: Stop, why: str) -> Refusal:
        """A typed stop, as the refusal that tells the agent of it."""
        self.stop = stop
        return Refusal(400, why, code=str(stop), stop=stop)

    def overflow(
        self, why: str, *, length: int | None = None, window: int | None = None
    ) -> Refusal:
        """The refusal of a prompt that does not fit the context window: a typed stop."""
        self.counts["calls over the context window"] += 1
        self.stop = Stop.CONTEXT_OVERFLOW
        return Refusal(
            400,
            why,
            code="context_length_exceeded",
            stop=Stop.CONTEXT_OVERFLOW,
            length=length,
            window=window,
        )

    def complain(self, sentence: str) -> None:
        """Record an upstream's error that the agent is told of as its own."""
        self.errors.append(ErrorRecord("model", sentence))

    def tokens_left(self) -> int | None:
        """How many tokens may still be sampled; None where there is no limit."""
        total = self.limits.max_tokens_total
        return None if total is None else max(0, total - self._sampled)

    def begin(self, place: Place) -> int:
        """Reserve a call's number among samples of the same request; counts retries."""
        slot, again = self.tree.begin(place)
        self.counts["samples superseded by a retry"] += again
        return slot

    def sampled(self, count: int) -> None:
        """Count sampled tokens; an answer after an overflow means that the agent recovered."""
        self._sampled += count
        if self.stop is Stop.CONTEXT_OVERFLOW:
            self.stop = None

    def seed_for(self, prompt: TokenIds, slot: int, asked: int | None) -> int:
        """The seed of one sample: a hash of the session's seed, the prompt, and which sample.

        Runs repeat; the same prompt in another session, or asked again, samples anew. An
        agent's own seed counts only where the session has none.
        """
        base = self._seed if self._fixed_seed or asked is None else asked
        digest = blake2b(prompt.tobytes(), digest_size=8, salt=slot.to_bytes(8, "little"))
        digest.update(str(base).encode())
        return int.from_bytes(digest.digest(), "little") >> 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around a call's work: `close` cancels it, and it then ends as a refusal."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call is answered inside a task")
        self._tasks.add(task)
        self._idle.clear()
        try:
            yield
        except asyncio.CancelledError:
            if not self.closed:
                raise
            task.uncancel()
            self.counts["calls cut by the end of the rollout"] += 1
            raise Refusal(400, f"session {self.id} was closed during this call") from None
        finally:
            self._tasks.discard(task)
            if not self._tasks:
                self._idle.set()

    def record(self) -> SessionRecord:
        """What the session holds so far."""
        return SessionRecord(self.tree.steps(), self.stop, tuple(self.errors), dict(+self.counts))

    async def close(self) -> SessionRecord:
        """End the rollout: cut calls in flight, refuse later ones, and hand over the record.

        The gateway keeps nothing of the session; a second call returns an empty record.
        """
        self.closed = True
        self._forget(self.id, None)
        for task in tuple(self._tasks):
            task.cancel()
        try:
            await asyncio.wait_for(self._idle.wait(), _CUT_SECONDS)
        except TimeoutError:  # an upstream that ignores its cancellation
            self.counts["calls that did not end when they were cut"] += len(self._tasks)
        record = self.record()
        self.tree = TokenTree()
        return record

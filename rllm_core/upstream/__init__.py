"""Where tokens come from.

An `Upstream` is one routable source of a model's tokens: token ids in, token ids and
logprobs out. It is replaced, never mutated: new weights are a new upstream of a higher
version. The gateway routes calls to it; backends and samplers provide it.

A `WireUpstream` is any OpenAI-compatible HTTP server, for evaluation, judges and simulated
users: messages in, messages out. An `Endpoint` is the address of one under which an agent
reaches its model, through the gateway.

    completions.py   vLLM and SGLang as a token upstream      pool.py   several workers as one
    faults.py        what may be repeated
"""

from collections.abc import AsyncIterator
from typing import Protocol

from attrs import Factory, field, frozen

from rllm_core.types import Logprobs, TokenIds

__all__ = ["Endpoint", "Sampled", "SamplingParams", "TokenPrompt", "Upstream", "WireUpstream"]


@frozen
class SamplingParams:
    """How to sample one completion.

    `stop` is a hint: an upstream that knows text may end there; the gateway cuts in any case.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    seed: int | None = None


@frozen
class TokenPrompt:
    """The ids of a prompt, exactly as the model sees them.

    `session` groups the calls of one rollout (a sampler may keep its prefix cache for it).
    """

    ids: TokenIds
    session: str = ""


@frozen
class Sampled:
    """A piece of a completion: one or more tokens, each with its logprob (nats).

    `version` is the weight version that sampled them. `finish` is None until the last
    piece: then "stop" (a stop token, which is the last id) or "length". `doubt` says why the
    tokens must not train, where their source cannot vouch for them.
    """

    ids: TokenIds
    logprobs: Logprobs
    version: int
    finish: str | None = None
    doubt: str | None = None


class Upstream(Protocol):
    """One source of tokens at one weight version."""

    @property
    def version(self) -> int:
        """The weight version that it samples from."""
        ...

    @property
    def context_window(self) -> int:
        """Tokens of prompt and completion together."""
        ...

    def sample(self, prompt: TokenPrompt, params: SamplingParams) -> AsyncIterator[Sampled]:
        """Sample one completion; pieces arrive as they are made. Cancelling aborts it."""
        ...

    async def score(self, prompt: TokenPrompt) -> Logprobs:
        """Logprob (nats, temperature 1) of each id given those before it; the first is 0."""
        ...


@frozen
class WireUpstream:
    """An OpenAI-compatible server: base URL (ending in its version path), model, key.

    `timeout` is in seconds, for one attempt. `retries` counts further attempts after refused or
    reset connections, 429 and 5xx. `token_ids` asks the server for token ids and logprobs
    (vLLM, SGLang: `return_token_ids`); providers that do not know the field may refuse it.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    headers: dict[str, str] = field(default=Factory(dict), repr=False)
    context_window: int | None = None
    timeout: float = 600.0
    retries: int = 4
    token_ids: bool = False


@frozen
class Endpoint:
    """Where one named agent of a rollout sends its model calls.

    `base_url` ends in `/v1`, as the OpenAI client wants it; `root_url` is the same without.
    """

    base_url: str
    api_key: str = field(repr=False)
    model: str

    @property
    def root_url(self) -> str:
        """The base URL for clients that add `/v1` themselves."""
        return self.base_url.removesuffix("/v1")

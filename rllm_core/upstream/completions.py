"""Token in, token out over HTTP: the completions endpoint of vLLM and SGLang.

`POST {base_url}/completions` takes a prompt of token ids and, with `return_token_ids`, answers
with the ids that it saw and the ids that it sampled. Both are checked: a prompt that came back
changed is an error, a sample whose counts disagree is kept but marked as doubtful. The whole
reply is asked for at once: SGLang gives no ids in streams, older vLLMs lose some, and the gateway
shows an agent nothing before a reply is parsed. Leaving `sample` early drops the connection, which
aborts the request at the server.

    {"choices": [{"text": …, "token_ids": [5, 7], "prompt_token_ids": [1, 2, 3],
                  "logprobs": {"token_logprobs": [-0.1, -0.7], …}, "finish_reason": "stop"}],
     "usage": {"prompt_tokens": 3, "completion_tokens": 2, …}}

A transport fault is a `WorkerFault`; `rllm_core.upstream.pool` repeats those, here or elsewhere.
"""

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import aiohttp
from attrs import Factory, define, field

from rllm_core.errors import ConfigError, ModelError
from rllm_core.types import Logprobs
from rllm_core.upstream import Sampled, SamplingParams, TokenPrompt
from rllm_core.upstream.faults import WorkerFault

__all__ = ["CompletionsUpstream"]

_CONNECT_SECONDS = 10.0
_UNLIMITED = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)


@define(eq=False)
class CompletionsUpstream:
    """One vLLM or SGLang server as a token upstream.

    `base_url` ends in its version path (`/v1`). `timeout` is in seconds, for one call. vLLM gives
    logprobs at temperature 1 unless it was started with `--logprobs-mode processed_logprobs`
    (`processed_logprobs` here); samples of other temperatures are then marked as doubtful, since
    they must not train. SGLang's logprobs are always processed.
    """

    base_url: str
    model: str
    context_window: int
    version: int = 0
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default=Factory(dict), repr=False)
    timeout: float = 600.0
    processed_logprobs: bool = False
    _client: aiohttp.ClientSession | None = field(default=None, init=False, repr=False)

    @classmethod
    async def connect(
        cls,
        base_url: str,
        model: str | None = None,
        *,
        context_window: int | None = None,
        **options: Any,
    ) -> Self:
        """Ask the server which model it serves and how long its window is.

        ConfigError where it cannot be reached, serves another model, or (SGLang) does not say
        its window and none is given.
        """
        upstream = cls(base_url.rstrip("/"), model or "", context_window or 0, **options)
        try:
            upstream._take(await upstream._served(), model, context_window)
        except BaseException:
            await upstream.close()
            raise
        return upstream

    def _take(
        self, served: list[dict[str, Any]], model: str | None, context_window: int | None
    ) -> None:
        names = [str(entry.get("id")) for entry in served]
        if not names or (model is not None and model not in names):
            raise ConfigError(
                f"{self.base_url} does not serve {model or 'any model'}",
                remedy=f"it serves: {', '.join(names) or 'nothing'}",
            )
        entry = served[names.index(model) if model is not None else 0]
        window = context_window or entry.get("max_model_len")
        if not window:
            raise ConfigError(
                f"{self.base_url} does not say how many tokens {entry['id']} can hold",
                remedy="name the context window yourself",
            )
        self.model, self.context_window = str(entry["id"]), int(window)

    async def _served(self) -> list[dict[str, Any]]:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return list((await self._call("GET", "/models"))["data"])
        except (ModelError, TimeoutError, KeyError) as error:
            reason = error.message if isinstance(error, ModelError) else "no list of models"
            raise ConfigError(
                f"no completions server at {self.base_url}: {reason}",
                remedy="start it, or correct the address (it ends in /v1)",
            ) from error

    async def close(self) -> None:
        """Close its connections; calls in flight are cut. Safe to call twice."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def healthy(self) -> bool:
        """Whether the server answers that it can work (`/health`, beside the version path)."""
        url = self.base_url.rstrip("/").rpartition("/")[0] + "/health"
        try:
            async with asyncio.timeout(_CONNECT_SECONDS), self._pool().get(url) as got:
                return got.status in (200, 404)  # 404: it works, and has no such page
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def sample(self, prompt: TokenPrompt, params: SamplingParams) -> AsyncIterator[Sampled]:
        """One completion, in one piece. A request that the server aborted has no finish."""
        body = self._body(prompt, params)
        answer = await self._call("POST", "/completions", body)
        yield self._sampled(answer, prompt, params)

    async def score(self, prompt: TokenPrompt) -> Logprobs:
        """The prompt's logprobs (vLLM's `prompt_logprobs`; ModelError where there are none)."""
        body = {"model": self.model, "prompt": prompt.ids.tolist(), "max_tokens": 1}
        answer = await self._call("POST", "/completions", {**body, "prompt_logprobs": 0})
        given = _choice(answer).get("prompt_logprobs")
        if not isinstance(given, list) or len(given) != len(prompt.ids):
            raise ModelError(
                f"{self.base_url} gave no logprobs of a prompt",
                remedy="vLLM gives them; SGLang's completions endpoint does not",
            )
        values = [_prompt_logprob(entry, i) for entry, i in zip(given, prompt.ids, strict=True)]
        return array("f", [0.0, *values[1:]])

    def _body(self, prompt: TokenPrompt, params: SamplingParams) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": prompt.ids.tolist(),
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "logprobs": 1,  # SGLang reads 0 as none
            "return_token_ids": True,
        }
        if params.top_k:
            body["top_k"] = params.top_k
        if params.stop_token_ids:
            body["stop_token_ids"] = list(params.stop_token_ids)
        if params.stop:
            body["stop"] = list(params.stop)
        if params.seed is not None:
            body["seed"] = params.seed
        return body

    def _sampled(
        self, answer: Mapping[str, Any], prompt: TokenPrompt, params: SamplingParams
    ) -> Sampled:
        choice = _choice(answer)
        seen, ids = choice.get("prompt_token_ids"), choice.get("token_ids")
        if not isinstance(ids, list):
            raise ModelError(
                f"{self.base_url} gave no token ids",
                remedy="`return_token_ids` needs vLLM 0.10.2 or later, or a recent SGLang",
            )
        if isinstance(seen, list) and seen != prompt.ids.tolist():
            raise ModelError(f"{self.base_url} changed the prompt: it saw other ids than were sent")
        chosen = (choice.get("logprobs") or {}).get("token_logprobs") or []
        known = [value for value in chosen if value is not None]
        finish = choice.get("finish_reason")
        return Sampled(
            array("i", ids),
            array("f", known if len(known) == len(chosen) else []),
            self.version,
            finish if finish in ("stop", "length") else None,
            self._doubt(ids, chosen, answer, params),
        )

    def _doubt(
        self, ids: list[int], logprobs: Any, answer: Mapping[str, Any], params: SamplingParams
    ) -> str | None:
        """Why the sample must not train, if so."""
        counted = (answer.get("usage") or {}).get("completion_tokens")
        if counted is not None and counted != len(ids):
            return f"counts disagree: {len(ids)} token ids, usage says {counted}"
        if len(logprobs) != len(ids) or any(value is None for value in logprobs):
            given = sum(value is not None for value in logprobs)
            return f"counts disagree: {len(ids)} token ids, {given} logprobs"
        if params.temperature not in (0.0, 1.0) and not self.processed_logprobs:
            return "logprobs at temperature 1, sampled at another"
        return None

    def _pool(self) -> aiohttp.ClientSession:
        if self._client is None:
            headers = dict(self.headers)
            if self.api_key:
                headers["Authorization"] = f"Bearer {self.api_key}"
            connector = aiohttp.TCPConnector(limit=0)
            self._client = aiohttp.ClientSession(
                connector=connector, headers=headers, timeout=_UNLIMITED
            )
        return self._client

    async def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The answer's JSON; WorkerFault or ModelError with URL, status and what was said."""
        url = self.base_url.rstrip("/") + path
        try:
            async with (
                asyncio.timeout(self.timeout),
                self._pool().request(method, url, json=body) as got,
            ):
                raw = await got.read()
        except TimeoutError:
            raise ModelError(f"{url} gave no answer within {self.timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            reason = str(getattr(error, "os_error", None) or error) or type(error).__name__
            raise WorkerFault(f"{url} cannot be reached: {reason}") from error
        return _parsed(url, got.status, raw, got.headers.get("Retry-After"))


def _parsed(url: str, status: int, raw: bytes, after: str | None) -> dict[str, Any]:
    text = raw.decode("utf-8", "replace")
    sentence = f"{url} answered {status}: {text[:300]}"
    if status == 429 or status >= 500:
        raise WorkerFault(sentence, unwell=status != 500, retry_after=_seconds(after))
    if status != 200:
        raise ModelError(sentence)
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ModelError(f"{url} answered 200 with what is no JSON object: {text[:300]}")
    return answer


def _seconds(header: str | None) -> float | None:
    """A Retry-After in seconds; its date form and nonsense count as absent."""
    try:
        return None if header is None else max(0.0, float(header))
    except ValueError:
        return None


def _choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ModelError(f"a completions server answered without a choice: {str(answer)[:300]}")
    first: dict[str, Any] = choices[0]
    return first


def _prompt_logprob(entry: Any, token: int) -> float:
    """From vLLM's {id: {logprob, rank, decoded_token}}; null for the first token."""
    if entry is None:
        return 0.0
    found = entry.get(str(token)) if isinstance(entry, dict) else None
    if not isinstance(found, dict) or not isinstance(found.get("logprob"), (int, float)):
        raise ModelError(f"no logprob for the prompt's token {token}: {str(entry)[:200]}")
    return float(found["logprob"])

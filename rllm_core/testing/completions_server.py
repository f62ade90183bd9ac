"""A local server that answers the completions endpoint as vLLM does, from a script, with faults.

The form is that of vLLM 0.32 (`return_token_ids`, token prompts), recorded from the real server.
It needs aiohttp only. What it samples is made up: by default a few ids that depend on the prompt
and the seed.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from aiohttp import web
from attrs import frozen

__all__ = ["CompletionsReply", "CompletionsServer"]


@frozen
class CompletionsReply:
    """One scripted answer.

    `ids` None samples three made-up ones. `status` other than 200 answers an error with `body` or
    a made-up message; `retry_after` is its header. `hang` waits so many seconds first; `cut` drops
    the connection. `malformed` answers 200 with `body`. `usage_error` is added to the count of
    completion tokens, `drop_logprobs` leaves out so many, `prompt_shift` is added to the prompt's
    ids, `without_ids` ignores `return_token_ids` as an old server does.
    """

    ids: Sequence[int] | None = None
    finish: str = "stop"
    status: int = 200
    body: str = ""
    retry_after: str | None = None
    hang: float = 0.0
    cut: bool = False
    malformed: bool = False
    usage_error: int = 0
    drop_logprobs: int = 0
    prompt_shift: int = 0
    without_ids: bool = False


Replies = Sequence[CompletionsReply] | Callable[[Mapping[str, Any]], CompletionsReply]


class CompletionsServer:
    """Use as `async with CompletionsServer() as server:`; `server.base_url` ends in /v1.

    Replies are used in order, the last one for ever; or come from a function of the body.
    `bodies` keeps what was asked; `aborted` counts requests whose caller went away. `healthy` is
    what `/health` says.
    """

    def __init__(
        self,
        replies: Replies = (CompletionsReply(),),
        *,
        model: str = "tiny",
        window: int | None = 8192,
        port: int = 0,
    ) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.aborted = 0
        self.healthy = True
        self.port = port
        self._model = model
        self._window = window
        self._replies = replies
        self._runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """What `CompletionsUpstream` takes as base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _models(self, _: web.Request) -> web.Response:
        entry: dict[str, Any] = {"id": self._model, "object": "model", "owned_by": "vllm"}
        if self._window is not None:
            entry["max_model_len"] = self._window
        return web.json_response({"object": "list", "data": [entry]})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        try:
            return await self._answer(request, body)
        except asyncio.CancelledError:
            self.aborted += 1
            raise

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if callable(self._replies):
            reply = self._replies(body)
        else:
            reply = self._replies[min(len(self.bodies), len(self._replies)) - 1]
        await asyncio.sleep(reply.hang)
        if reply.cut:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        if reply.status != 200:
            headers = {} if reply.retry_after is None else {"Retry-After": reply.retry_after}
            text = reply.body or json.dumps(
                {"error": {"message": "scripted", "code": reply.status}}
            )
            return web.Response(text=text, status=reply.status, headers=headers)
        if reply.malformed:
            return web.Response(text=reply.body, content_type="application/json")
        return web.json_response(_answer(reply, body, len(self.bodies), self._model))


def _answer(
    reply: CompletionsReply, body: Mapping[str, Any], number: int, model: str
) -> dict[str, Any]:
    ids = list(_made_up(body) if reply.ids is None else reply.ids)
    finish = reply.finish
    if len(ids) > body["max_tokens"]:
        ids, finish = ids[: body["max_tokens"]], "length"
    chosen = [logprob_of(i) for i in ids][: len(ids) - reply.drop_logprobs]
    prompt = body["prompt"]
    choice: dict[str, Any] = {
        "index": 0,
        "text": "".join(chr(i % 128) for i in ids),
        "logprobs": {
            "text_offset": list(range(len(chosen))),
            "token_logprobs": chosen,
            "tokens": [str(i) for i in ids[: len(chosen)]],
            "top_logprobs": [{str(i): value} for i, value in zip(ids, chosen, strict=False)],
        },
        "finish_reason": finish,
        "stop_reason": None,
        "token_ids": ids,
        "prompt_logprobs": None,
        "prompt_token_ids": [i + reply.prompt_shift for i in prompt],
    }
    if body.get("prompt_logprobs") is not None:
        rest = [
            {str(i): {"logprob": logprob_of(i), "rank": 1, "decoded_token": ""}} for i in prompt[1:]
        ]
        choice["prompt_logprobs"] = [None, *rest]
    if reply.without_ids or not body.get("return_token_ids"):
        del choice["token_ids"], choice["prompt_token_ids"]
    count = len(ids) + reply.usage_error
    usage = {"prompt_tokens": len(prompt), "completion_tokens": count}
    return {
        "id": f"cmpl-{number}",
        "object": "text_completion",
        "created": 0,
        "model": model,
        "choices": [choice],
        "usage": {**usage, "total_tokens": len(prompt) + count, "prompt_tokens_details": None},
        "kv_transfer_params": None,
    }


def _made_up(body: Mapping[str, Any]) -> list[int]:
    start = (sum(body["prompt"]) + (body.get("seed") or 0)) % 90
    return [start + 1, start + 2, start + 3]


def logprob_of(token: int) -> float:
    """The logprob that this server gives a token."""
    return -0.25 * (1 + token % 7)

"""Answering a call from a token upstream: token in, token out.

The prompt is the branch's ids followed by what the new messages add; what comes back is recorded
as sampled, id for id. Nothing that was sampled is ever rendered again.
"""

import json
from array import array
from hashlib import blake2b
from typing import Any

from attrs import Factory, define, evolve

from rllm_core.errors import ModelError
from rllm_core.gateway.calls import Answer, Call, Refusal
from rllm_core.gateway.exchange import Exchange
from rllm_core.gateway.renderers.protocol import Parsed
from rllm_core.gateway.rendering import Rendering
from rllm_core.gateway.session import Session
from rllm_core.gateway.tree import Node, Place
from rllm_core.types import Logprobs, Step, TokenIds, Usage, VersionSpan
from rllm_core.upstream import Sampled, SamplingParams, TokenPrompt, WireUpstream

__all__ = ["answer_with_tokens", "prompt_of"]


@define
class _Output:
    """A completion as it grows."""

    ids: TokenIds = Factory(lambda: array("i"))
    logprobs: Logprobs = Factory(lambda: array("f"))
    versions: list[VersionSpan] = Factory(list)
    finish: str | None = None
    doubt: str | None = None
    stopped_by: str | None = None

    def add(self, piece: Sampled) -> None:
        start, end = len(self.ids), len(self.ids) + len(piece.ids)
        self.ids.extend(piece.ids)
        self.logprobs.extend(piece.logprobs)
        last = self.versions[-1] if self.versions else None
        if last is not None and last.version == piece.version:
            self.versions[-1] = VersionSpan(last.start, end, last.version)
        elif end > start:
            self.versions.append(VersionSpan(start, end, piece.version))
        self.finish = piece.finish
        self.doubt = self.doubt or piece.doubt

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens: the agent asked to stop there."""
        del self.ids[length:], self.logprobs[length:]
        kept = [v for v in self.versions if v.start < length]
        self.versions = [VersionSpan(v.start, min(v.end, length), v.version) for v in kept]
        self.finish = "stop"


async def answer_with_tokens(exchange: Exchange) -> tuple[Answer, Node]:
    """Sample one reply, record it in the session's tree, and return it.

    Refusal: the call asks for what a token upstream cannot do, or its prompt is empty or leaves
    no room in the context window. Errors of the upstream are passed on as they are.
    """
    session, call = exchange.session, exchange.call
    _refuse_unable(call)
    _count_ignored(session, call)
    rendering = exchange.route.rendering
    place, context, reason = await prompt_of(exchange, rendering)
    if reason is not None:
        session.counts[f"not bridged: {reason}"] += 1
    prompt = session.tree.sequence(place.parent)
    prompt.extend(context)
    if not prompt:
        raise Refusal(400, "the prompt is empty: the model's template makes no token of it")
    params = _params(exchange, rendering, len(prompt))
    slot = session.begin(place)
    tools = () if call.tool_choice == "none" else call.tools
    try:
        output = await _sample(exchange, prompt, params, slot)
        _cut_at_stop(rendering, output, params.stop)
        raw = call.prompt is not None
        parsed = rendering.text(output.ids) if raw else await rendering.parse(output.ids, tools)
    except BaseException:
        session.tree.cancel(place, slot)
        raise
    session.sampled(len(output.ids))
    step = Step(
        exchange.id,
        model=exchange.route.model,
        reply=_message(exchange.id, parsed, params.stop, offered=bool(tools)),
        context_ids=context,
        output_ids=output.ids,
        logprobs=output.logprobs,
        versions=tuple(output.versions),
        temperature=params.temperature,
        finish=output.finish or "stop",
        untrainable=_doubt(output),
        usage=Usage(len(prompt), len(output.ids)),
        started=exchange.started,
        seconds=exchange.seconds,
    )
    node = session.tree.add(place, slot, step, rendering.renderer)
    return _answer(exchange, step, prompt, rendering, output.stopped_by), node


def _refuse_unable(call: Call) -> None:
    """Refuse what would have to be promised without being kept."""
    if call.tool_choice not in (None, "auto", "none"):
        raise Refusal(
            400,
            "tool_choice must be auto or none: the model is sampled freely here, and cannot be "
            "forced to call a tool",
        )
    kind = (call.body.get("response_format") or {}).get("type", "text")
    if kind != "text":
        raise Refusal(400, f"response_format {kind!r} needs constrained sampling: only text here")
    if call.body.get("top_logprobs"):
        raise Refusal(400, "top_logprobs must be 0: only the sampled token's logprob is known")


def _count_ignored(session: Session, call: Call) -> None:
    for key in ("frequency_penalty", "presence_penalty", "logit_bias", "reasoning_effort"):
        if call.body.get(key):
            session.counts[f"calls whose {key} was ignored"] += 1


async def prompt_of(exchange: Exchange, rendering: Rendering) -> tuple[Place, TokenIds, str | None]:
    """Where the call belongs in the tree, the ids that it adds there, and why it is no bridge."""
    session, call = exchange.session, exchange.call
    if call.prompt is not None:  # a branch of its own: no chat has a message of this role
        ids, text = rendering.prompt(call.prompt)
        told = [{"role": "prompt", "content": text}]
        return session.tree.place(exchange.agent, exchange.route.role, (), told), ids, None
    place = session.tree.place(exchange.agent, exchange.route.role, call.tools, call.messages)
    if place.parent is not None:
        reason = "the earlier call has no token ids"
        if place.parent.renderer is rendering.renderer:
            context = await rendering.bridge(session.tree, place.parent, place.fresh, call.tools)
            if context is not None:
                return place, context, None
            reason = "the template is not append-only here"
        elif place.parent.renderer is not None:
            reason = "the renderer has changed"
        return place.as_root(), await rendering.whole(call.messages, call.tools), reason
    return place, await rendering.whole(call.messages, call.tools), None


def _params(exchange: Exchange, rendering: Rendering, length: int) -> SamplingParams:
    """What the session enforces over what the agent asked, within the context window."""
    session, call = exchange.session, exchange.call
    upstream = exchange.route.upstream
    window = upstream.context_window
    if window is not None and length >= window:
        raise session.overflow(
            f"This model's maximum context length is {window} tokens. However, your messages "
            f"resulted in {length} tokens. Please reduce the length of the messages.",
            length=length,
            window=window,
        )
    asked = {**call.asked, **session.sampling}
    bounds = [call.max_tokens, session.sampling.get("max_tokens"), session.tokens_left()]
    wanted = min((b for b in bounds if b is not None), default=None)
    room = None if window is None else window - length
    if wanted is not None and room is not None and wanted > room:
        session.counts["calls whose max_tokens was clamped to the window"] += 1
    limits = [n for n in (wanted, room) if n is not None]
    return SamplingParams(
        temperature=float(asked.get("temperature", 1.0)),
        top_p=float(asked.get("top_p", 1.0)),
        top_k=max(0, int(asked.get("top_k", 0))),
        max_tokens=min(limits) if limits else SamplingParams().max_tokens,
        stop_token_ids=rendering.stop_token_ids,
        stop=asked.get("stop", ()),
        seed=asked.get("seed"),
    )


async def _sample(
    exchange: Exchange, prompt: TokenIds, params: SamplingParams, slot: int
) -> _Output:
    """Sample to the end, across switches of weights.

    An upstream that ends without a finish was paused for a switch: the call waits at the gate
    and goes on, as prompt plus tokens so far, with whatever the role is routed to then.
    """
    session, route = exchange.session, exchange.route
    output = _Output()
    while output.finish is None:
        async with route.passage():
            upstream = route.upstream
            if isinstance(upstream, WireUpstream):
                raise ModelError(f"the role {route.role!r} was routed to a server in mid-call")
            ids = prompt + output.ids
            attempt = evolve(
                params,
                max_tokens=params.max_tokens - len(output.ids),
                seed=session.seed_for(ids, slot, params.seed),
            )
            async for piece in upstream.sample(TokenPrompt(ids, session.id), attempt):
                output.add(piece)
        if output.finish is None:
            if route.upstream is upstream and not route.held:
                raise ModelError(f"{route.model or route.role}: the sampler ended in mid-reply")
            session.counts["samples continued after a switch of weights"] += 1
    return output


def _cut_at_stop(rendering: Rendering, output: _Output, stops: tuple[str, ...]) -> None:
    """Drop what was sampled after the first stop string: the agent will not see it."""
    if not stops:
        return
    text = rendering.renderer.decode(output.ids)
    if not any(stop in text for stop in stops):
        return
    low, high = 0, len(output.ids)
    while low < high:
        middle = (low + high) // 2
        head = rendering.renderer.decode(output.ids[:middle])
        low, high = (low, middle) if any(s in head for s in stops) else (middle + 1, high)
    output.cut(low)
    output.stopped_by = min((s for s in stops if s in text), key=text.index)


def _message(
    call_id: str, parsed: Parsed, stops: tuple[str, ...], *, offered: bool
) -> dict[str, Any]:
    """The reply in Chat Completions form; malformed tool calls stay visible as text."""
    content = parsed.content
    calls: list[dict[str, Any]] = []
    for attempt in parsed.tool_calls or ():
        if offered and attempt.status == "ok":
            name = f"{call_id}/{len(calls)}"  # the same in a replay, another for every call
            calls.append(_tool_call(name, attempt.name, attempt.arguments))
        else:
            content = "\n".join(filter(None, [content, attempt.raw]))
    for stop in stops:
        content = content.partition(stop)[0]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if parsed.reasoning_content:
        message["reasoning_content"] = parsed.reasoning_content
    if calls:
        message["content"] = content or None
        message["tool_calls"] = calls
    return message


def _tool_call(seed: str, name: str | None, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    function = {"name": name, "arguments": text}
    digest = blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return {"id": f"call_{digest}", "type": "function", "function": function}


def _doubt(output: _Output) -> str | None:
    """Why the sampler's ids cannot be vouched for, if so."""
    if output.doubt is None and len(output.ids) != len(output.logprobs):
        return f"the sampler gave {len(output.ids)} ids and {len(output.logprobs)} logprobs"
    return output.doubt


def _answer(
    exchange: Exchange,
    step: Step,
    prompt: TokenIds,
    rendering: Rendering,
    stopped_by: str | None,
) -> Answer:
    finish = "tool_calls" if step.reply.get("tool_calls") and step.finish == "stop" else step.finish
    decode = rendering.renderer.decode
    wanted = exchange.call.want_logprobs
    return Answer(
        exchange.id,
        exchange.model,
        int(step.started),
        step.reply,
        finish,
        step.usage,
        prompt,
        step.output_ids,
        step.logprobs,
        tuple(decode([i]) for i in step.output_ids) if wanted else (),
        stopped_by,
    )

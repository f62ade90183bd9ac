"""What the gateway adds to a call: `python tests/perf/gateway_latency.py`.

The same scripted token upstream, with the same renderer, is called through the gateway and
through the least aiohttp server that can answer Chat Completions (render, sample, decode), in
turns within one run, one call after another and 64 at a time. Printed as JSON: medians in
milliseconds and what the gateway adds. With 64 calls at once everything here shares one core and
one event loop, so a call waits for the work of 63 others: the share of one is given too.
"""

import argparse
import asyncio
import json
import statistics
import time
from array import array

import aiohttp
from aiohttp import web

from rllm_core.gateway import Gateway
from rllm_core.gateway.renderers import ChatMLRenderer
from rllm_core.testing.tokenizer import AmbiguousTokenizer
from rllm_core.testing.upstream import ScriptedUpstream
from rllm_core.upstream import SamplingParams, TokenPrompt

REPLY = "the thing " * 8
USER = [{"role": "user", "content": "hello there, say the thing"}]


async def direct(upstream: ScriptedUpstream, renderer: ChatMLRenderer) -> tuple[str, web.AppRunner]:
    """The upstream behind a server that records nothing."""

    async def chat(request: web.Request) -> web.Response:
        body = await request.json()
        ids = array("i", renderer.render_ids(body["messages"], add_generation_prompt=True))
        out: list[int] = []
        async for piece in upstream.sample(TokenPrompt(ids), SamplingParams()):
            out += piece.ids
        message = {"role": "assistant", "content": renderer.parse_response(out).content}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"id": "x", "object": "chat.completion", "choices": [choice]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}/v1", runner


async def calls(http: aiohttp.ClientSession, targets, count: int, at_once: int) -> list[float]:
    """Latencies in seconds of `count` calls over `targets` (base URL, key), `at_once` at a time."""
    taken: list[float] = []
    body = json.dumps({"model": "policy", "messages": USER}).encode()

    async def worker(base: str, key: str, share: int) -> None:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        for _ in range(share):
            started = time.perf_counter()
            async with http.post(f"{base}/chat/completions", data=body, headers=headers) as got:
                assert got.status == 200, await got.text()
                await got.read()
            taken.append(time.perf_counter() - started)

    await asyncio.gather(
        *(worker(*targets[i % len(targets)], count // at_once) for i in range(at_once))
    )
    return taken


async def measure(count: int, rounds: int) -> dict:
    renderer = ChatMLRenderer(AmbiguousTokenizer())
    upstream = ScriptedUpstream([REPLY], renderer)
    base, runner = await direct(upstream, renderer)
    gateway = Gateway()
    await gateway.start()
    gateway.route("policy", upstream, renderer=renderer)
    report = {"reply_tokens": len(renderer.encode(REPLY)) + 1}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        for name, at_once in (("sequential", 1), ("64 at once", 64)):
            taken: dict[str, list[float]] = {"direct": [], "gateway": []}
            for n in range(rounds + 1):
                upstream.seen.clear()
                sessions = [gateway.open(f"s{at_once}-{n}-{i}", seed=i) for i in range(at_once)]
                endpoints = [(s.endpoint().base_url, s.key) for s in sessions]
                plain = await calls(http, [(base, "none")], count, at_once)
                through = await calls(http, endpoints, count, at_once)
                for session in sessions:
                    assert len((await session.close()).steps) == count // at_once
                if n:  # the first round warms up
                    taken["direct"] += plain
                    taken["gateway"] += through
            report[name] = summary(taken, at_once)
    await gateway.close()
    await runner.cleanup()
    return report


def summary(taken: dict[str, list[float]], at_once: int) -> dict[str, float]:
    medians = {name: 1000 * statistics.median(values) for name, values in taken.items()}
    added = medians["gateway"] - medians["direct"]
    return {
        "direct_ms": round(medians["direct"], 3),
        "gateway_ms": round(medians["gateway"], 3),
        "added_ms": round(added, 3),
        "added_ms_of_the_loop_per_call": round(added / at_once, 3),
        "calls": len(taken["gateway"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.calls, options.rounds)), indent=1))


if __name__ == "__main__":
    main()

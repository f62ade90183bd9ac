"""Several workers as one: sticky sessions, faults, and workers that come and go."""

import asyncio
import time
from array import array
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rllm_core.errors import ModelError
from rllm_core.testing.completions_server import CompletionsReply, CompletionsServer
from rllm_core.upstream import SamplingParams, TokenPrompt
from rllm_core.upstream.completions import CompletionsUpstream
from rllm_core.upstream.pool import WorkerPool

OK = (CompletionsReply(),)


@asynccontextmanager
async def pooled(*replies, **options):
    """A pool over servers a, b, … with these replies, and the servers."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(CompletionsServer(each)) for each in replies]
        workers = {
            name: await CompletionsUpstream.connect(server.base_url)
            for name, server in zip("abcdef", servers, strict=False)
        }
        pool = await stack.enter_async_context(WorkerPool(workers, **options))
        yield pool, servers


async def ask(pool, session, number=0):
    prompt = TokenPrompt(array("i", [1, number]), session)
    return [piece async for piece in pool.sample(prompt, SamplingParams(seed=0))]


def homes(servers, count):
    """Which server each session's prompt (its number) went to, last."""
    return [
        next(
            i for i, server in enumerate(servers) if [1, n] in [b["prompt"] for b in server.bodies]
        )
        for n in range(count)
    ]


async def test_sessions_spread_and_stay_while_workers_come_and_go():
    async with pooled(OK, OK, OK) as (pool, servers), CompletionsServer() as late:
        for n in range(30):
            await ask(pool, f"s{n}", n)
        before = homes(servers, 30)
        assert sorted(before.count(i) for i in range(3)) == [10, 10, 10]
        pool.add("late", await CompletionsUpstream.connect(late.base_url))
        await pool.remove("b")
        for server in servers:
            server.bodies.clear()
        for n in range(30):
            await ask(pool, f"s{n}", n)
        after = homes([*servers, late], 30)
        assert [a for a, b in zip(after, before, strict=True) if b != 1] == [
            b for b in before if b != 1
        ]
        assert 1 not in after
        assert after.count(3) == 10  # the removed worker's sessions went to the idle new one
        # a worker that takes another's place (new weights) keeps its sessions
        fresh = await CompletionsUpstream.connect(servers[0].base_url, version=7)
        await pool.add("a", fresh).close()
        pieces = [await ask(pool, f"s{n}", n) for n in range(30) if before[n] == 0]
        assert {piece[0].version for piece in pieces} == {7}


async def test_the_least_loaded_worker_gets_a_new_session():
    slow = (CompletionsReply(hang=0.5),)
    async with pooled(slow, OK) as (pool, servers):
        first = asyncio.ensure_future(ask(pool, "s0", 0))
        await asyncio.sleep(0.1)
        for n in range(1, 6):
            await ask(pool, f"s{n}", n)
        await first
        assert homes(servers, 6) == [0, 1, 1, 1, 1, 1]


FAULTS = [
    CompletionsReply(status=503),
    CompletionsReply(status=500),
    CompletionsReply(cut=True),
    CompletionsReply(status=429, retry_after="30"),
]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_repeated_elsewhere_at_once(fault):
    async with pooled((fault,), OK) as (pool, servers):
        started = time.monotonic()
        for n in range(4):
            await ask(pool, f"s{n}", n)
        assert time.monotonic() - started < 5
        assert pool.retried >= 1
        assert len(servers[1].bodies) == 4


async def test_retry_after_is_honoured_where_there_is_no_other_worker():
    replies = (CompletionsReply(status=429, retry_after="0.6"), CompletionsReply())
    async with pooled(replies, check_every=0) as (pool, _):
        started = time.monotonic()
        await ask(pool, "s")
        assert 0.6 <= time.monotonic() - started < 3


async def test_a_worker_that_reloads_for_a_while_fails_no_call():
    async with pooled(OK, check_every=0.1) as (pool, servers):
        await ask(pool, "s")
        await servers[0].__aexit__()
        calls = [asyncio.ensure_future(ask(pool, f"s{n}", n)) for n in range(8)]
        await asyncio.sleep(1.0)
        assert not any(call.done() for call in calls)
        await servers[0].__aenter__()
        await asyncio.wait_for(asyncio.gather(*calls), 10)


async def test_patience_ends_and_a_poisonous_request_harms_nobody():
    def poison(body):
        return CompletionsReply(status=500 if body["prompt"] == [1, 66] else 200)

    async with pooled(poison, poison, patience=0.5) as (pool, _):
        with pytest.raises(ModelError, match="answered 500"):
            await ask(pool, "p", 66)
        assert all(not w["resting"] for w in pool.state().values())
        await ask(pool, "s", 1)
    down = (CompletionsReply(status=503),)
    async with pooled(down, patience=0.5, check_every=0) as (pool, _):
        with pytest.raises(ModelError, match="answered 503"):
            await ask(pool, "s")
    async with WorkerPool(patience=0.2) as empty:
        with pytest.raises(ModelError, match="none of 0 workers"):
            await ask(empty, "s")


async def test_removing_a_worker_moves_its_calls_in_flight():
    async with pooled((CompletionsReply(hang=20),), OK) as (pool, servers):
        call = asyncio.ensure_future(ask(pool, "s0", 0))
        await asyncio.sleep(0.3)
        assert servers[0].bodies
        await pool.remove("a")
        await asyncio.wait_for(call, 5)
        assert [b["prompt"] for b in servers[1].bodies] == [[1, 0]]
        assert pool.state()["b"]["inflight"] == 0

"""The gateway alone: sessions over HTTP, workers, roles, keys, and where it listens."""

import asyncio
import gc
import os
import re
import signal
import stat
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from rllm_core.cli.frame import run_command
from rllm_core.errors import ConfigError
from rllm_core.gateway import Gateway
from rllm_core.gateway.control import Control
from rllm_core.serialize import from_json
from rllm_core.testing.completions_server import CompletionsReply, CompletionsServer
from rllm_core.testing.upstream import ScriptedUpstream
from rllm_core.testing.wire_server import WireServer
from rllm_core.types import Step
from rllm_core.upstream.completions import CompletionsUpstream
from rllm_core.upstream.pool import WorkerPool


@asynccontextmanager
async def controlled(key=None, *, pool=None, connect=None, routed=None, **options):
    """A gateway with its API, and a function that asks it."""
    gateway = Gateway(**options)
    Control(gateway, key, pool, connect).attach()
    if routed:
        gateway.route("policy", routed[0], renderer=routed[1])
    await gateway.start()
    transport = aiohttp.UnixConnector(str(options["unix_socket"])) if options else None
    async with AsyncExitStack() as stack:
        stack.push_async_callback(gateway.close)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=transport))

        async def ask(method, path, body=None, given=key, expect=200):
            url = path if path.startswith("http") else gateway.url + path
            headers = {"Authorization": f"Bearer {given}"} if given else {}
            async with http.request(method, url, json=body, headers=headers) as got:
                assert got.status == expect, await got.text()
                return await got.json()

        yield gateway, ask


CHAT = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}


async def test_a_session_over_http_from_opening_to_closing(renderer):
    upstream = ScriptedUpstream(["yes"], renderer)
    async with controlled("admin", routed=(upstream, renderer)) as (_, ask):
        asked = {"id": "task-7", "sampling": {"temperature": 0.5, "max_tokens": 9}, "seed": 3}
        told = await ask("POST", "/sessions", asked, expect=201)
        assert told["id"] == "task-7"
        assert told["base_url"].endswith("/sessions/task-7/as/policy/v1")
        url = told["base_url"] + "/chat/completions"
        reply = await ask("POST", url, {**CHAT, "temperature": 2}, given=told["key"])
        assert reply["choices"][0]["message"]["content"] == "yes"
        read = await ask("GET", "/sessions/task-7")
        (step,) = [from_json(Step, each) for each in read["steps"]]
        assert step.context_ids == upstream.seen[0][0].ids
        assert len(step.output_ids) == len(step.logprobs) > 0
        assert step.temperature == 0.5
        assert (await ask("GET", "/sessions"))["sessions"] == [{"id": "task-7", "calls": 1}]
        assert await ask("DELETE", "/sessions/task-7") == read
        await ask("GET", "/sessions/task-7", expect=404)
        await ask("POST", url, CHAT, given=told["key"], expect=400)


async def test_keys_open_what_they_are_for(renderer):
    async with controlled("admin", routed=(ScriptedUpstream(["x"], renderer), renderer)) as (
        _,
        ask,
    ):
        told = await ask("POST", "/sessions", {}, expect=201)
        for given in (None, "wrong", told["key"]):
            await ask("POST", "/sessions", {}, given=given, expect=401)
            await ask("GET", f"/sessions/{told['id']}", given=given, expect=401)
            await ask("DELETE", f"/sessions/{told['id']}", given=given, expect=401)
        await ask("POST", told["base_url"] + "/chat/completions", CHAT, given="admin", expect=401)


BAD = {
    "unknown field": ({"sedd": 1}, 400),
    "sampling text": ({"sampling": {"temperature": "hot"}}, 400),
    "sampling unknown": ({"sampling": {"frequency": 1}}, 400),
    "unrouted role": ({"roles": ["judge"]}, 400),
    "not an object": ([1], 400),
    "bad id": ({"id": "a/b"}, 400),
    "twice": ({"id": "there"}, 409),
    "wrong type": ({"max_calls": "many"}, 400),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_requests_are_told_as_json(renderer, name):
    body, status = BAD[name]
    async with controlled(routed=(ScriptedUpstream(["x"], renderer), renderer)) as (_, ask):
        await ask("POST", "/sessions", {"id": "there"}, expect=201)
        told = await ask("POST", "/sessions", body, expect=status)
        assert told["error"]["message"]


async def test_workers_are_put_and_removed_and_roles_held(renderer):
    said = [*renderer.encode("yes"), *renderer.get_stop_token_ids()[:1]]

    async def connect(url, version):
        return await CompletionsUpstream.connect(url, version=version)

    async with CompletionsServer([CompletionsReply(said)]) as server, WorkerPool() as pool:
        routed = (pool, renderer)
        async with controlled(pool=pool, connect=connect, routed=routed) as (_, ask):
            put = await ask("PUT", "/workers/a", {"url": server.base_url, "version": 1})
            assert put["workers"]["a"]["inflight"] == 0
            told = await ask("POST", "/sessions", {}, expect=201)
            call = ("POST", told["base_url"] + "/chat/completions", CHAT, told["key"])
            await ask(*call)
            await ask("POST", "/roles/policy/hold")
            waiting = asyncio.ensure_future(ask(*call))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await ask("PUT", "/workers/a", {"url": server.base_url, "version": 2})
            await ask("POST", "/roles/policy/release")
            await asyncio.wait_for(waiting, 5)
            read = await ask("DELETE", f"/sessions/{told['id']}")
            assert [step["versions"][0]["version"] for step in read["steps"]] == [1, 2]
            await ask("DELETE", "/workers/a")
            await ask("DELETE", "/workers/a", expect=404)
            await ask("PUT", "/workers/b", {"url": "http://127.0.0.1:1/v1"}, expect=400)
            await ask("POST", "/roles/nobody/hold", expect=400)


async def test_it_listens_on_a_socket_of_its_owner_alone(tmp_path, renderer):
    path = tmp_path / "g.sock"
    routed = (ScriptedUpstream(["yes"], renderer), renderer)
    async with controlled(routed=routed, unix_socket=path) as (_, ask):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        told = await ask("POST", "/sessions", {}, expect=201)
        url = told["base_url"] + "/chat/completions"
        assert (await ask("POST", url, CHAT, given=told["key"]))["choices"]
        with pytest.raises(ConfigError, match="another process listens"):
            await Gateway(unix_socket=path).start()
    assert not path.exists()


async def test_a_thousand_sessions_leave_no_memory_behind(renderer):
    routed = (ScriptedUpstream(["yes"], renderer), renderer)
    async with controlled(routed=routed) as (gateway, ask):

        async def whole_session():
            told = await ask("POST", "/sessions", {}, expect=201)
            await ask("POST", told["base_url"] + "/chat/completions", CHAT, given=told["key"])
            routed[0].seen.clear()
            read = await ask("DELETE", f"/sessions/{told['id']}")
            assert len(read["steps"]) == 1

        async def grown(count):
            for _ in range(count // 10):
                await asyncio.gather(*(whole_session() for _ in range(10)))
            gc.collect()
            return len(gc.get_objects()), resident_bytes()

        objects, resident = await grown(200)
        more_objects, more_resident = await grown(1000)
        assert not gateway.sessions
        assert more_objects - objects < 500
        assert more_resident - resident < 8 << 20


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_the_command_serves_until_it_is_told_to_stop(tmp_path):
    async with WireServer(["hello"]) as server:
        serving = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rllm_core.cli", "gateway", "serve", "--port", "0",
            "--model", "m", "--base-url", server.base_url,
            env={**os.environ, "RLLM_GATEWAY_KEY": "k", "RLLM_HOME": str(tmp_path)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            first = (await asyncio.wait_for(serving.stdout.readline(), 20)).decode()
            (url,) = re.findall(r"http://\S+", first)
            async with aiohttp.ClientSession(headers={"Authorization": "Bearer k"}) as http:
                async with http.post(f"{url}/sessions") as got:
                    told = await got.json()
                key = {"Authorization": f"Bearer {told['key']}"}
                target = f"{told['base_url']}/chat/completions"
                async with http.post(target, json=CHAT, headers=key) as got:
                    assert (await got.json())["choices"][0]["message"]["content"] == "hello"
            serving.send_signal(signal.SIGTERM)
            _, stderr = await asyncio.wait_for(serving.communicate(), 10)
        finally:
            if serving.returncode is None:
                serving.kill()
        assert (serving.returncode, stderr.decode()) == (0, "stopping\n")


WRONG = [
    (["--host", "0.0.0.0"], "no admin key"),
    (["--public-url", "https://x.example"], "no admin key"),
    (["--renderer", "d"], "no effect without --worker"),
    (["--worker", "http://a/v1", "--base-url", "http://b/v1"], "both name"),
    (["--route", "judge"], "--route judge"),
    ([], "a model that a backend loads"),
]


@pytest.mark.parametrize(("flags", "sentence"), WRONG)
def test_what_cannot_work_is_refused(flags, sentence, capsys, monkeypatch):
    monkeypatch.delenv("RLLM_GATEWAY_KEY", raising=False)
    assert run_command(["gateway", "serve", "--port", "0", "--model", "tiny", *flags]) == 2
    assert sentence in capsys.readouterr().err

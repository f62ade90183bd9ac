"""The gateway beside others, in one run: `python tests/perf/gateway_compare.py`.

One scripted server answers every chat call at once with 64 tokens (ids and logprobs where they
are asked for, as vLLM gives them). It is called directly and through

- ours: `rllm gateway serve`, one process, ids and logprobs recorded;
- `rllm-model-gateway` (PyPI), one worker, its memory store;
- LiteLLM's proxy (PyPI), one worker, no database,

in turns, at 1, 64 and 512 calls at once. Each of the others lives in an environment of its own,
which the script makes (`--environments`, kept for the next time); `--without litellm` leaves one
out. Printed as JSON: per gateway and level requests a second, median and 95th percentile in
milliseconds, and what the median adds to that of a direct call; the median time to the first
streamed text, one call after another; the resident memory of each gateway at the end. Run it on a quiet machine with four cores: server, gateway and two clients.
"""

import argparse
import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import aiohttp
from aiohttp import web

TOKENS = 64
MODEL = "m"
MESSAGES = [
    {"role": "system", "content": "You are a careful assistant. " * 20},
    {"role": "user", "content": "Say the thing, in sixty-four tokens."},
]
KEY = "GATEWAY_COMPARE_KEY"
"""The variable that holds this run's key to LiteLLM, which serves nobody without one."""
PACKAGES = {"rllm-model-gateway": "rllm-model-gateway", "litellm": "litellm[proxy]"}


def serve_upstream(port: int) -> None:
    """Answer chat calls for ever: what everything else is measured over."""
    plain = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": MODEL,
        "usage": {"prompt_tokens": 80, "completion_tokens": TOKENS, "total_tokens": 80 + TOKENS},
    }  # fmt: skip
    message = {"role": "assistant", "content": "the thing " * (TOKENS // 2)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    entries = [{"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}] * TOKENS
    known = {**choice, "token_ids": list(range(TOKENS)), "logprobs": {"content": entries}}
    bare = json.dumps({**plain, "choices": [choice]}).encode()
    full = {**plain, "choices": [known], "prompt_token_ids": list(range(80))}
    with_ids = json.dumps(full).encode()

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body.get("stream"):
            return await streamed(request, body)
        answer = with_ids if body.get("return_token_ids") else bare
        return web.Response(body=answer, content_type="application/json")

    async def streamed(request: web.Request, body: dict) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        head = {**plain, "object": "chat.completion.chunk"}
        usage = head.pop("usage")
        for n in range(TOKENS):
            finish = "stop" if n == TOKENS - 1 else None
            delta = {"role": "assistant", "content": "thing "}
            part = {"index": 0, "delta": delta, "finish_reason": finish}
            if body.get("return_token_ids"):
                part = {**part, "token_ids": [n], "logprobs": {"content": entries[:1]}}
            await response.write(f"data: {json.dumps({**head, 'choices': [part]})}\n\n".encode())
        last = json.dumps({**head, "choices": [], "usage": usage})
        await response.write(f"data: {last}\n\ndata: [DONE]\n\n".encode())
        await response.write_eof()
        return response

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", models)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, backlog=1024)


def environment(place: Path, name: str) -> Path:
    """The commands of a package, in an environment of its own."""
    commands = place / name / "bin"
    if not (commands / name).exists():
        print(f"making an environment for {PACKAGES[name]} in {place / name}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", place / name], check=True)
        pip = [commands / "python", "-m", "pip", "install", "--quiet", PACKAGES[name]]
        subprocess.run(pip, check=True)
    return commands


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(command: list[str], url: str, log: Path, **environ: str):
    """A server process that answers at `url`; it and its children end with the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True,
            env={**os.environ, **environ},
        )  # fmt: skip
    try:
        wait_for(url, process, log)
        yield process
    finally:
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def wait_for(url: str, process: subprocess.Popen, log: Path, seconds: float = 120) -> None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2)
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise SystemExit(f"no answer at {url}:\n{log.read_text(errors='replace')[-2000:]}")


def start_all(stack: ExitStack, names: list[str], place: Path, logs: Path) -> dict[str, dict]:
    """Start the upstream and the gateways; per name its URL, and its process for memory."""
    port = free_port()
    upstream = f"http://127.0.0.1:{port}"
    script = [sys.executable, __file__, "--upstream", str(port)]
    stack.enter_context(running(script, f"{upstream}/health", logs / "upstream.log"))
    started = {"direct": {"url": upstream}}
    for name in names:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command, environ = command_of(name, port, upstream, place, logs)
        log = logs / f"{name}.log"
        process = stack.enter_context(running(command, f"{url}/health", log, **environ))
        started[name] = {"url": url, "pid": process.pid}
    return started


def command_of(name: str, port: int, upstream: str, place: Path, logs: Path):
    """What starts a gateway over the upstream, and its environment variables."""
    if name == "ours":
        serve = [sys.executable, "-m", "rllm_core.cli", "gateway", "serve", "--port", str(port)]
        target = ["--model", f"vllm/{MODEL}", "--base-url", f"{upstream}/v1"]
        return [*serve, *target], {"RLLM_HOME": str(logs / "home")}
    commands = environment(place, name)
    if name == "rllm-model-gateway":
        options = ["--port", str(port), "--worker", f"{upstream}/v1", "--store", "memory"]
        return [str(commands / name), *options, "--log-level", "error"], {}
    parameters = {"model": f"openai/{MODEL}", "api_base": f"{upstream}/v1", "api_key": "none"}
    config = logs / "litellm.json"  # JSON is YAML
    config.write_text(
        json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": parameters}]})
    )
    options = ["--config", str(config), "--port", str(port), "--num_workers", "1"]
    return [str(commands / "litellm"), *options, "--telemetry", "False"], {
        "LITELLM_LOG": "ERROR",
        "LITELLM_MASTER_KEY": os.environ[KEY],
    }


async def endpoints(http: aiohttp.ClientSession, name: str, url: str, count: int):
    """Where `count` callers send their calls: (URL, key), a session each where there are any."""
    if name == "ours":
        found = []
        for _ in range(count):
            async with http.post(f"{url}/sessions") as got:
                told = await got.json()
            found.append((told["base_url"], told["key"]))
        return found
    if name == "rllm-model-gateway":
        return [(f"{url}/sessions/{os.getpid()}-{i}/v1", "none") for i in range(count)]
    return [(f"{url}/v1", os.environ[KEY])] * count


async def calls(name: str, url: str, count: int, at_once: int) -> list[float]:
    """Latencies in seconds of `count` calls, `at_once` at a time."""
    taken: list[float] = []
    body = json.dumps({"model": MODEL, "messages": MESSAGES, "max_tokens": TOKENS}).encode()
    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        targets = await endpoints(http, name, url, at_once)

        async def caller(base: str, key: str) -> None:
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            for _ in range(max(1, count // at_once)):
                started = time.perf_counter()
                async with http.post(f"{base}/chat/completions", data=body, headers=headers) as got:
                    text = await got.read()
                    if got.status != 200:
                        raise SystemExit(f"{name}: {got.status} {text[:300]!r}")
                taken.append(time.perf_counter() - started)

        started = time.perf_counter()
        await asyncio.gather(*(caller(*target) for target in targets))
        elapsed = time.perf_counter() - started
        if name == "ours":
            for base, _ in targets:
                session = base.split("/sessions/")[1].split("/")[0]
                async with http.delete(f"{url}/sessions/{session}") as got:
                    assert got.status == 200
    return [elapsed, *taken]


async def first_texts(name: str, url: str, count: int) -> list[float]:
    """Seconds to the first streamed text of `count` calls, one after another."""
    taken: list[float] = []
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": TOKENS, "stream": True}
    async with aiohttp.ClientSession() as http:
        ((base, key),) = await endpoints(http, name, url, 1)
        headers = {"Authorization": f"Bearer {key}"}
        for _ in range(count):
            started, first = time.perf_counter(), None
            async with http.post(f"{base}/chat/completions", json=body, headers=headers) as got:
                async for line in got.content:
                    if first is None and b'"content"' in line and b"thing" in line:
                        first = time.perf_counter() - started
            if first is None:
                raise SystemExit(f"{name}: a stream without text (status {got.status})")
            taken.append(first)
    return taken


def client(name: str, url: str, count: int, at_once: int) -> list[float]:
    """One client process's share."""
    return asyncio.run(calls(name, url, count, at_once))


def measure(started: dict[str, dict], levels: list[int], options: argparse.Namespace) -> dict:
    """All gateways in turns, level by level."""
    report: dict[str, dict] = {}
    with ProcessPoolExecutor(options.clients) as pool:
        for at_once in levels:
            clients = min(options.clients, at_once)
            count = max(options.calls, 2 * at_once)
            rates: dict[str, list[float]] = {name: [] for name in started}
            taken: dict[str, list[float]] = {name: [] for name in started}
            for round_ in range(options.rounds + 1):
                for name, place in started.items():
                    share = (name, place["url"], count // clients, at_once // clients)
                    futures = [pool.submit(client, *share) for _ in range(clients)]
                    parts = [future.result() for future in futures]
                    if round_:  # the first round warms up
                        slowest = max(part[0] for part in parts)
                        rates[name].append(sum(len(part) - 1 for part in parts) / slowest)
                        taken[name] += [each for part in parts for each in part[1:]]
            report[str(at_once)] = summary(rates, taken)
    return report


def summary(rates: dict[str, list[float]], taken: dict[str, list[float]]) -> dict:
    direct = statistics.median(taken["direct"])
    return {
        name: {
            "requests_per_s": round(statistics.median(rates[name])),
            "median_ms": round(1000 * statistics.median(values), 2),
            "p95_ms": round(1000 * statistics.quantiles(values, n=20)[-1], 2),
            "added_ms": round(1000 * (statistics.median(values) - direct), 2),
            "calls": len(values),
        }
        for name, values in taken.items()
    }


def resident_mib(pid: int) -> float:
    """Of a process and its children."""
    total = 0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in (pid, *children):
        total += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    return round(total * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstream", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--calls", type=int, default=2048, help="a round and gateway, at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=200, help="streamed calls a gateway")
    parser.add_argument("--clients", type=int, default=2, help="processes that call")
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 64, 512])
    parser.add_argument("--without", action="append", default=[], choices=sorted(PACKAGES))
    default = Path.home() / ".cache" / "rllm-perf"
    parser.add_argument("--environments", type=Path, default=default)
    options = parser.parse_args()
    if options.upstream is not None:
        serve_upstream(options.upstream)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left running
    os.environ[KEY] = f"sk-{secrets.token_hex(24)}"
    names = ["ours", *(name for name in PACKAGES if name not in options.without)]
    logs = Path(tempfile.mkdtemp(prefix="gateway-compare."))
    try:
        with ExitStack() as stack:
            started = start_all(stack, names, options.environments, logs)
            report = {
                "cores": os.cpu_count(),
                "load": os.getloadavg()[0],
                "reply_tokens": TOKENS,
                "at_once": measure(started, options.levels, options),
                "first_text_ms": {
                    name: round(1000 * statistics.median(first), 2)
                    for name, place in started.items()
                    if (first := asyncio.run(first_texts(name, place["url"], options.streams)))
                },
                "resident_mib": {
                    name: resident_mib(place["pid"])
                    for name, place in started.items()
                    if "pid" in place
                },
            }
        print(json.dumps(report, indent=1))
    finally:
        shutil.rmtree(logs, ignore_errors=True)


if __name__ == "__main__":
    main()

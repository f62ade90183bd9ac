r"""A scripted model that needs no event loop: a `WireServer` in a thread of its own.

    with ScriptedModel(["4"]) as model:
        rllm.evaluate(solver, "tasks.jsonl", model="scripted", base_url=model.base_url)

`python -m rllm_core.testing.scripted replies.jsonl --port 8321` serves one from a file of rules,
for trying an agent out without a model. Each line is a reply; of those whose `when` occurs in the
conversation's last message the first is given, and one without `when` to anything:

    {"when": "12 * 34", "tool_calls": [["multiply", "{\"a\": 12, \"b\": 34}"]]}
    {"when": "408", "text": "408"}
"""

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rllm_core.errors import ConfigError
from rllm_core.testing.wire_server import Replies, WireReply, WireServer

__all__ = ["ScriptedModel", "main", "rules"]

SECONDS = 30.0
"""Time that the server may take to start, and to stop."""


class ScriptedModel:
    """Serves `replies` (as `WireServer` takes them) until its `with` block ends."""

    def __init__(self, replies: Replies, *, port: int = 0) -> None:
        self._server = WireServer(replies, port=port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as base URL."""
        return self._server.base_url

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of the requests so far."""
        return [body for _, body in self._server.requests]

    def __enter__(self) -> Self:
        self._thread.start()
        self._await(self._server.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._await(self._server.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    def _await(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(SECONDS)


def rules(file: Path) -> Replies:
    """The replies that a file of rules describes, as a function of the request."""
    read = [_rule(file, n, line) for n, line in enumerate(_lines(file), 1) if line.strip()]

    def answer(body: Mapping[str, Any]) -> WireReply:
        last = str((body.get("messages") or [{}])[-1].get("content") or "")
        for when, reply in read:
            if when in last:
                return reply
        return WireReply(status=400, body=f"no rule of {file.name} fits {last!r:.200}")

    return answer


def _lines(file: Path) -> Sequence[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error}") from error


def _rule(file: Path, number: int, line: str) -> tuple[str, WireReply]:
    try:
        rule = json.loads(line)
        return rule.pop("when", ""), WireReply(**rule)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}:{number} is no rule: {error}") from error


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a file of rules until it is interrupted."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m rllm_core.testing.scripted")
    parser.add_argument("rules", type=Path, help="a file of rules, one JSON object a line")
    parser.add_argument("--port", type=int, default=8321)
    given = parser.parse_args(arguments)
    with ScriptedModel(rules(given.rules), port=given.port) as model:
        print(f"--model scripted --base-url {model.base_url}", flush=True)  # noqa: T201
        threading.Event().wait()


if __name__ == "__main__":
    main()

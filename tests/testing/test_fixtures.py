"""The fixtures that authors load: each does what it says, and the home keeps to itself."""

import json
import random
import socket
import subprocess
import sys
import urllib.request

import pytest

from rllm_core.config import home
from rllm_core.errors import ConfigError
from rllm_core.testing.scripted import rules
from rllm_core.testing.tokens import complete


def ask(base_url, content):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]})
    request = urllib.request.Request(f"{base_url}/chat/completions", body.encode())
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)["choices"][0]["message"]


def test_the_home_is_its_own_and_has_no_network(rllm_home, scripted_model):
    assert home() == rllm_home
    assert not rllm_home.exists()
    for address in (("192.0.2.1", 80), ("example.invalid", 80)):
        with pytest.raises(OSError, match="rllm_home reaches for"):
            socket.create_connection(address, 1)
    model = scripted_model(["hello"])
    assert ask(model.base_url, "hi")["content"] == "hello"
    assert model.requests[0]["messages"][0]["content"] == "hi"


async def test_the_gateway_serves_a_scripted_upstream(gateway, scripted_upstream, renderer):
    upstream = scripted_upstream(["four"], version=3)
    gateway.route("policy", upstream, renderer=renderer, model="scripted")
    session = gateway.open("s")
    completion = await complete(upstream, renderer.encode("two and two"))
    assert renderer.decode(completion.ids).startswith("four")
    assert set(completion.versions) == {3}
    await session.close()


def test_the_tokenizer_is_ambiguous(ambiguous_tokenizer):
    chance = random.Random(0)
    ways = {tuple(ambiguous_tokenizer.segment("the hello", chance)) for _ in range(50)}
    assert len(ways) > 3
    assert {ambiguous_tokenizer.decode(way) for way in ways} == {"the hello"}


RULES = """
{"when": "12 * 34", "tool_calls": [["multiply", "{}"]]}
{"when": "408", "text": "it is 408"}
"""


def test_rules_answer_by_the_last_message(tmp_path, scripted_model):
    (tmp_path / "replies.jsonl").write_text(RULES)
    url = scripted_model(rules(tmp_path / "replies.jsonl")).base_url
    assert ask(url, "What is 12 * 34?")["tool_calls"][0]["function"]["name"] == "multiply"
    assert ask(url, "408")["content"] == "it is 408"
    with pytest.raises(OSError, match="400"):
        ask(url, "something else")


@pytest.mark.parametrize("line", ["{", "[]", '{"txt": "a"}'])
def test_a_line_that_is_no_rule_is_named(tmp_path, line):
    (tmp_path / "replies.jsonl").write_text(f"{RULES}{line}\n")
    with pytest.raises(ConfigError, match=r"replies.jsonl:4 is no rule"):
        rules(tmp_path / "replies.jsonl")


def test_a_failing_conformance_test_shows_the_values(tmp_path):
    """The suite's asserts are rewritten in the author's own run."""
    (tmp_path / "test_mine.py").write_text(
        "from rllm_core.algorithms.grpo import GRPO\n"
        "from rllm_core.testing import AlgorithmConformance\n"
        "class Wrong(GRPO):\n"
        "    def advantage(self, rewards_G): return super().advantage(rewards_G) + 1\n"
        "class TestMine(AlgorithmConformance):\n"
        "    algorithm = Wrong\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "test_a_group_of_one_has_no_credit" in done.stdout
    assert "assert {1.0} == {0.0}" in done.stdout

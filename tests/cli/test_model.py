"""`rllm model`: providers set up, listed, used and removed; a key is never shown."""

import json

import pytest
from click.testing import CliRunner

from rllm_core.cli.model import model
from rllm_core.errors import ConfigError

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path / "home"


def run(*arguments: str, given: str | None = None) -> str:
    done = CliRunner().invoke(model, list(arguments), input=given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert KEY not in done.output
    return done.output


def refused(*arguments: str, given: str | None = None) -> str:
    done = CliRunner().invoke(model, list(arguments), input=given)
    assert isinstance(done.exception, ConfigError), done.output
    return str(done.exception)


def test_a_server_from_set_up_to_removal() -> None:
    said = run(
        "setup",
        "mine",
        "--base-url",
        "http://h:8000",
        "--api-key-env",
        "MINE_KEY",
        "--store-key",
        given=f"{KEY}\n",
    )
    assert "http://h:8000/v1" in said
    listed = json.loads(run("list", "--json"))
    mine = next(p for p in listed["providers"] if p["name"] == "mine")
    assert mine == {
        "name": "mine",
        "base_url": "http://h:8000/v1",
        "custom": True,
        "api_key_env": "MINE_KEY",
        "key": "stored (MINE_KEY comes first)",
        "ready": True,
    }
    run("use", "mine/m")
    assert json.loads(run("show", "--json"))["base_url"] == "http://h:8000/v1"
    assert "stored" in run("show", "mine")
    run("remove", "mine")
    assert "default model: none" in run("list")


def test_a_known_provider_needs_its_key_only(monkeypatch) -> None:
    assert "OPENAI_API_KEY is not set" in run("list")
    assert "its key is still missing" in run("use", "openai/gpt-5-mini")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert "OPENAI_API_KEY is set" in run("setup", "openai")
    assert "OPENAI_API_KEY is set" in run("show", "openai/gpt-5-mini")


@pytest.mark.parametrize(
    ("arguments", "given", "part"),
    [
        (["setup"], None, "which provider?"),
        (["setup", "mine"], None, "its address is needed"),
        (["setup", "mine", "--base-url", "h"], None, "is no http address"),
        (["setup", "openai", "--store-key"], "\n", "the key is empty"),
        (["use", "nonsense"], None, "unknown model"),
        (["show"], None, "no default model is set"),
        (["remove", "openai"], None, "was never set up"),
    ],
)
def test_what_is_refused(arguments: list[str], given: str | None, part: str) -> None:
    assert part in refused(*arguments, given=given)


def test_a_full_disk_is_told(monkeypatch, home) -> None:
    home.mkdir()
    (home / "providers.toml").mkdir()
    assert "providers.toml" in refused("use", "tiny")

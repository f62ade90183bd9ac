"""What a model's name stands for, and where its key goes."""

import stat

import pytest

from rllm_core.errors import ConfigError
from rllm_core.providers import (
    Local,
    Provider,
    Wire,
    default_model,
    forget,
    key_of,
    providers,
    remember,
    resolve_model,
    set_default_model,
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("name", "base_url", "expected"),
    [
        ("openai/gpt-5-mini", None, ("https://api.openai.com/v1", "gpt-5-mini")),
        ("openrouter/a/b", None, ("https://openrouter.ai/api/v1", "a/b")),
        ("vllm/Qwen/Qwen3-8B", None, ("http://localhost:8000/v1", "Qwen/Qwen3-8B")),
        ("vllm/Qwen/Qwen3-8B", "http://h:9/v1", ("http://h:9/v1", "Qwen/Qwen3-8B")),
        ("openai/gpt-oss", "http://h:9/v1/", ("http://h:9/v1", "openai/gpt-oss")),
        ("openai/gpt-5", "https://api.openai.com/v1", ("https://api.openai.com/v1", "gpt-5")),
        ("anything", "http://h:9", ("http://h:9/v1", "anything")),
    ],
)
def test_served_models(name: str, base_url: str | None, expected: tuple[str, str]) -> None:
    found = resolve_model(name, base_url=base_url)
    assert isinstance(found, Wire)
    assert (found.base_url, found.model) == expected


def test_local_models(tmp_path, home) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    (home / "runs" / "7f3a" / "export").mkdir(parents=True)
    assert resolve_model("tiny") == Local("tiny")
    assert resolve_model("Qwen/Qwen3-8B") == Local("Qwen/Qwen3-8B")
    assert resolve_model("hf/openai/gpt-oss-20b") == Local("openai/gpt-oss-20b")
    assert resolve_model("weights") == Local("weights", tmp_path / "weights")
    assert resolve_model("./weights") == Local("./weights", tmp_path / "weights")
    assert resolve_model("7f3a").source == str(home / "runs" / "7f3a" / "export")


@pytest.mark.parametrize(
    ("name", "base_url", "part"),
    [
        ("gpt-5", None, "a model is provider/model"),
        ("tinny", None, "did you mean 'tiny'?"),
        ("", None, "no name"),
        ("./nowhere", None, "there is no directory"),
        ("tiny", "http://h/v1", "loaded on this machine"),
        ("x", "h:9/v1", "is no http address"),
        ("x", "http://me:secret@h/v1", "base_url holds a password"),
    ],
)
def test_what_is_no_model(name: str, base_url: str | None, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_model(name, base_url=base_url)
    assert part in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_run_without_a_model_says_so(home) -> None:
    (home / "runs" / "7f3a").mkdir(parents=True)
    with pytest.raises(ConfigError, match="run '7f3a' has no exported model"):
        resolve_model("7f3a")


def test_a_missing_key_is_named_before_anything_starts(monkeypatch) -> None:
    found = resolve_model("openai/gpt-5")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        found.upstream()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert found.upstream().api_key == "sk-1"
    assert "sk-1" not in repr(found.upstream())


def test_a_provider_s_key_goes_to_its_own_host_alone(monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert resolve_model("openai/gpt-5", base_url="http://elsewhere/v1").upstream().api_key is None
    remember(Provider("vllm", "http://ours:8000/v1"), "sk-2")
    assert resolve_model("vllm/a").upstream().api_key == "sk-2"
    assert resolve_model("vllm/a", base_url="http://ours:8000/v1").upstream().api_key == "sk-2"
    assert resolve_model("vllm/a", base_url="http://theirs:8000/v1").upstream().api_key is None
    remember(Provider("vllm", "http://theirs:8000/v1"))
    assert resolve_model("vllm/a").upstream().api_key is None


def test_a_key_of_one_s_own_choice(monkeypatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-3")
    found = resolve_model("x", base_url="http://h/v1", api_key_env="MY_KEY")
    assert found.upstream().api_key == "sk-3"


def test_what_is_set_up_is_remembered_for_its_owner_alone(home) -> None:
    remember(Provider("mine", "http://h/v1", "MINE_KEY"), "sk-4")
    set_default_model("mine/m")
    assert stat.S_IMODE((home / "keys.toml").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert "sk-4" not in (home / "providers.toml").read_text()
    assert key_of(providers()["mine"]) == "sk-4"
    assert key_of(providers()["mine"], {"MINE_KEY": "sk-5"}) == "sk-5"
    assert default_model() == "mine/m"
    forget("mine")
    assert default_model() is None
    assert "sk-4" not in (home / "keys.toml").read_text()
    with pytest.raises(ConfigError, match="was never set up"):
        forget("mine")


def test_a_damaged_file_is_told_without_its_content(home) -> None:
    home.mkdir()
    (home / "keys.toml").write_text("mine = sk-6")
    with pytest.raises(ConfigError) as caught:
        providers()
    assert "keys.toml" in str(caught.value)
    assert "sk-6" not in str(caught.value)


def test_a_home_that_cannot_be_written(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(ConfigError, match="set RLLM_HOME to a folder"):
        set_default_model("tiny")

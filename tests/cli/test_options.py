"""Flags, words and overrides of `run`, `eval` and `train` become one configuration."""

import click
import pytest
from click.testing import CliRunner

from rllm_core.cli.options import FLAGS, Request, run_options
from rllm_core.config import load
from rllm_core.errors import ConfigError


def request(kind: str | None, *arguments: str) -> Request:
    seen: list[Request] = []

    @click.command()
    @run_options(kind)
    def command(request: Request) -> None:
        seen.append(request)

    done = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return seen[0]


def test_an_evaluation(monkeypatch) -> None:
    got = request(
        "eval",
        "gsm8k",
        "math",
        "--model",
        "openai/m",
        "--attempts",
        "4",
        "harness.max_turns=3",
        "--max",
        "5",
        "--shuffle",
        "--dry-run",
        "--json",
    )
    config = got.load()
    assert (got.dry_run, got.json, got.resume) == (True, True, None)
    assert [(b.use, b.max, b.shuffle) for b in config.benchmark] == [
        ("gsm8k", 5, True),
        ("math", 5, True),
    ]
    assert (config.run.kind, config.run.attempts) == ("eval", 4)
    assert config.policy.name == "openai/m"
    assert config.harness.options == {"max_turns": 3}
    assert str(config.origin("run.attempts")) == "--attempts"


def test_a_run_file(tmp_path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[run]\nkind = 'train'\n[benchmark]\nuse = 'gsm8k'\n")
    config = request(None, str(file), "run.steps=3", "--seed", "4").load()
    assert (config.run.kind, config.run.steps, config.run.seed) == ("train", 3, 4)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (
            "train",
            ["gsm8k", "--steps", "3", "run.steps=4"],
            "run.steps is set twice: --steps and 'run.steps=4' on the command line",
        ),
        ("train", ["gsm8k", "run.kind=eval"], "run.kind is set twice: `rllm train` and"),
        (
            "eval",
            ["gsm8k", "--concurrency", "0"],
            "run.concurrency: must be at least 1, not 0 (--concurrency)",
        ),
        ("eval", ["gsm8k", "run.attempt=2"], "did you mean 'attempts'?"),
    ],
)
def test_what_disagrees_is_refused(kind: str, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        request(kind, *arguments).load()
    assert message in str(caught.value)


@pytest.mark.parametrize("arguments", [[], ["a.toml", "b.toml"]])
def test_one_run_file_is_wanted(arguments: list[str]) -> None:
    @click.command()
    @run_options(None)
    def command(request: Request) -> None: ...

    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert "run file" in done.output


def test_every_flag_is_a_setting() -> None:
    for flag in FLAGS:
        kind = flag.kinds[0]
        value = True if flag.switch else flag.type(1)
        overrides = [("run.kind", kind), ("benchmark", "x"), (flag.path, value)]
        extra = [] if flag.path != "models.policy.base_url" else [("models.policy.name", "m")]
        assert load(overrides=[*overrides, *extra], environ={})

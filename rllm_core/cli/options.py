"""The vocabulary of `run`, `eval` and `train`: flags that stand for settings of the run file.

    @click.command()
    @run_options("eval")
    def evaluate(request: Request) -> None:
        config = request.load()

Every flag is an override with its own name as the origin, so that an error can point at it.
Words after the flags name benchmarks, or set anything (`harness.max_turns=30`).
"""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from attrs import frozen

from rllm_core.cli.disabling import disabled_names, plugin_option

if TYPE_CHECKING:
    from rllm_core.config import Override, RunConfig

__all__ = ["FLAGS", "Flag", "Request", "run_options"]

F = TypeVar("F", bound=Callable[..., Any])

BOTH = ("eval", "train")


@frozen
class Flag:
    """A flag, the setting that it makes, and the commands that have it."""

    name: str
    path: str
    help: str
    type: Any = str
    metavar: str | None = None
    kinds: tuple[str, ...] = BOTH
    switch: bool = False


FLAGS = (
    Flag("--model", "models.policy.name", "provider/model, hub name, directory, run id, or tiny."),
    Flag("--base-url", "models.policy.base_url", "An OpenAI-compatible server.", metavar="URL"),
    Flag("--harness", "harness.use", "The agent: a plugin, or module:object.", metavar="NAME"),
    Flag("--scorer", "scorer.use", "Score by NAME or module:object instead.", metavar="NAME"),
    Flag("--sandbox", "sandbox.use", "Where the agent runs.", metavar="NAME"),
    Flag("--backend", "backend.use", "What holds the weights.", metavar="NAME"),
    Flag("--algorithm", "algorithm.use", "What turns scores into credit.", str, "NAME", ("train",)),
    Flag("--split", "benchmark.split", "The benchmark's split.", metavar="NAME"),
    Flag("--file", "benchmark.file", "Read tasks from this JSONL file.", metavar="FILE"),
    Flag("--max", "benchmark.max", "At most this many tasks.", int, "N"),
    Flag("--shuffle", "benchmark.shuffle", "Shuffle the tasks.", switch=True),
    Flag("--attempts", "run.attempts", "Attempts at each task.", int, "N", ("eval",)),
    Flag("--steps", "run.steps", "Optimizer steps.", int, "N", ("train",)),
    Flag("--group-size", "run.group_size", "Attempts at each task.", int, "N", ("train",)),
    Flag("--learning-rate", "run.learning_rate", "Learning rate.", float, "X", ("train",)),
    Flag("--concurrency", "run.concurrency", "Rollouts at the same time.", int, "N"),
    Flag("--temperature", "models.policy.temperature", "Sampling temperature.", float, "X"),
    Flag("--max-tokens", "models.policy.max_tokens", "Tokens that one call may sample.", int, "N"),
    Flag("--seed", "run.seed", "Seed of shuffling and sampling.", int, "N"),
    Flag("--name", "run.name", "A name for the run.", metavar="TEXT"),
    Flag("--record", "run.record", "Record the models' answers.", switch=True),
    Flag("--replay", "run.replay", "Answer from a recorded run instead.", metavar="RUN"),
    Flag("--run-dir", "run.directory", "The run's directory.", metavar="DIR"),
)


@frozen
class Request:
    """What was asked for on the command line.

    `resume` names a run (id, name or directory) to go on with; `dry_run` prints the resolved
    file and stops; `json` prints data instead of prose; `disable` holds the NAMEs of
    `-p no:NAME`.
    """

    overrides: "tuple[Override, ...]"
    file: str | None = None
    resume: str | None = None
    dry_run: bool = False
    json: bool = False
    disable: tuple[str, ...] = ()

    def load(self) -> "RunConfig":
        """The configuration: the file, the environment, then what was typed."""
        from rllm_core.config import load

        return load(self.file, overrides=self.overrides)


def run_options(kind: str | None) -> Callable[[F], F]:
    """Give a command the shared options; its function is called with one `Request`.

    `kind` is "eval" or "train"; None is `rllm run FILE`, whose file says the kind. Further
    options of the command's own reach the function as keywords.
    """
    flags = [flag for flag in FLAGS if kind is None or kind in flag.kinds]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(words: tuple[str, ...], **given: Any) -> Any:
            return function(_request(kind, words, flags, given), **given)

        command: Any = called
        for flag in reversed(flags):
            command = _option(flag)(command)
        command = _control(command)
        metavar = {None: "[FILE]", "eval": "[BENCHMARK]...", "train": "[BENCHMARK]"}[kind]
        words = f"{metavar} [key=value]..."
        result: F = click.argument("words", nargs=-1, metavar=words)(command)
        return result

    return decorate


def _option(flag: Flag) -> Callable[[Any], Any]:
    if flag.switch:
        return click.option(flag.name, _key(flag), is_flag=True, default=None, help=flag.help)
    return click.option(
        flag.name, _key(flag), type=flag.type, metavar=flag.metavar, default=None, help=flag.help
    )


def _control(command: Any) -> Any:
    for decorate in (
        plugin_option,
        click.option("--json", "as_json", is_flag=True, help="Print data instead of prose."),
        click.option("--dry-run", is_flag=True, help="Print the resolved run file and stop."),
        click.option("--resume", metavar="RUN", help="Go on with a run; nothing is repeated."),
    ):
        command = decorate(command)
    return command


def _key(flag: Flag) -> str:
    return "flag_" + flag.name.lstrip("-").replace("-", "_")


def _request(
    kind: str | None, words: Sequence[str], flags: Sequence[Flag], given: dict[str, Any]
) -> Request:
    """Take the shared options out of what click parsed."""
    resume, dry_run, as_json = (given.pop(key) for key in ("resume", "dry_run", "as_json"))
    disable = disabled_names(given.pop("disable"))
    typed = [(flag, given.pop(_key(flag))) for flag in flags]
    names = [word for word in words if not _is_override(word)]
    settings = [word for word in words if _is_override(word)]
    overrides = (*_named(kind, names), *_flags(typed), *_settings(settings))
    file = _file(names, resume) if kind is None else None
    return Request(overrides, file, resume, dry_run, as_json, disable)


def _is_override(word: str) -> bool:
    return "=" in word and not word.startswith((".", "/", "~"))


def _file(names: Sequence[str], resume: str | None) -> str | None:
    if len(names) == 1:
        return names[0]
    if not names and resume is not None:
        return None
    what = f"one run file is wanted, not {len(names)}" if names else "which run file?"
    raise click.UsageError(f"{what}  rllm run FILE [key=value]...")


def _named(kind: str | None, names: Sequence[str]) -> "list[Override]":
    """The kind of run, and the benchmarks that were named."""
    from rllm_core.config import Override
    from rllm_core.plugins import Origin

    if kind is None:
        return []
    found = [Override(("run", "kind"), kind, Origin(f"`rllm {kind}`"))]
    if names:
        value = [{"use": name} for name in names]
        typed = " ".join(names)
        found.append(Override(("benchmark",), value, Origin(f"'{typed}' on the command line")))
    return found


def _flags(typed: "Sequence[tuple[Flag, Any]]") -> "list[Override]":
    from rllm_core.config import Override
    from rllm_core.plugins import Origin

    return [
        Override(tuple(flag.path.split(".")), value, Origin(flag.name))
        for flag, value in typed
        if value is not None
    ]


def _settings(words: Sequence[str]) -> "list[Override]":
    from rllm_core.config import parse_override

    return [parse_override(word) for word in words]

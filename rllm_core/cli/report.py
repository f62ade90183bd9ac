"""What a stored run has to say, as data: the one source of `runs list` and `runs show`."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import frozen

from rllm_core.cli.account import count_events
from rllm_core.statistics import Attempt, Summary, summarize
from rllm_core.store import RunInfo, RunReader

__all__ = ["Report", "row", "when"]

TRAIN = "train"
"""The phase of episodes that were trained on."""
ENDED = "ended"
"""The kind of the event that says why a run stopped before its end."""


@frozen
class Report:
    """A run with its results: one summary a phase, and one of everything.

    `ending` is why it stopped before its end; "" where it did not, or was killed.
    """

    info: RunInfo
    names: Mapping[str, str]
    phases: Mapping[str, Summary]
    whole: Summary
    events: Mapping[str, int]
    ending: str
    rewards: tuple[float, ...]
    steps: int
    checkpoints: tuple[tuple[int, Path], ...]
    errors: Mapping[str, tuple[int, str]]
    audit: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, reader: RunReader) -> "Report":
        """Read it; calls and tokens are not touched, so twenty thousand episodes take little."""
        attempts = {phase: list(reader.attempts(phase)) for phase in reader.phases()}
        everything = [a for members in attempts.values() for a in members]
        metrics = reader.metrics(TRAIN)
        info, events = reader.info, list(reader.events())
        endings = [event.message for event in events if event.kind == ENDED]
        return cls(
            info=info,
            names=_names(info.config_toml),
            phases={phase: summarize(members) for phase, members in attempts.items()},
            whole=summarize(everything),
            events=count_events(event for event in events if event.kind != ENDED),
            ending=endings[-1] if endings and info.status != "finished" else "",
            rewards=tuple(m["reward"] for _, m in metrics if "reward" in m),
            steps=len(metrics),
            checkpoints=tuple(reader.checkpoints()),
            errors=_errors(everything),
            audit=reader.summary().get("audit"),
        )

    @property
    def results(self) -> dict[str, Summary]:
        """The phases that measure something; those trained on only where there is no other."""
        measured = {name: s for name, s in self.phases.items() if name != TRAIN}
        return measured or dict(self.phases)

    def to_json(self) -> dict[str, Any]:
        """The report as `--json` prints it."""
        return {
            **_identity(self.info, self.names),
            "phases": {name: summary.to_json() for name, summary in self.phases.items()},
            "account": {**self.whole.to_json(), "events": dict(self.events)},
            "rewards": list(self.rewards),
            "steps": self.steps,
            "ending": self.ending or None,
            "checkpoints": [{"step": s, "directory": str(d)} for s, d in self.checkpoints],
            "errors": {kind: {"count": n, "example": m} for kind, (n, m) in self.errors.items()},
            "plugins": dict(self.info.plugins),
            "config": self.info.config_toml,
        }


def row(report: Report) -> dict[str, Any]:
    """The report as one row of `rllm runs list --json`."""
    return {
        **_identity(report.info, report.names),
        "results": {
            name: {"accuracy": summary.accuracy.mean, "se": summary.accuracy.se}
            for name, summary in report.results.items()
            if summary.accuracy is not None
        },
    }


def when(created: float) -> str:
    """Seconds since the epoch as local date and time."""
    return datetime.fromtimestamp(created).astimezone().strftime("%Y-%m-%d %H:%M")


def _identity(info: RunInfo, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": info.id,
        "kind": info.kind,
        "name": info.name,
        **names,
        "status": info.status,
        "created": datetime.fromtimestamp(info.created, UTC).isoformat(timespec="seconds"),
        "directory": str(info.directory),
    }


def _names(config_toml: str) -> dict[str, str]:
    """What the configuration calls the benchmark and the model; "" where it does not say."""
    try:
        config = tomllib.loads(config_toml)
    except tomllib.TOMLDecodeError:  # edited by hand since: no reason not to show the run
        config = {}
    policy = _tables(_tables(config, "models")[0], "policy")[0]
    benchmarks = [str(t.get("use") or t.get("file") or "") for t in _tables(config, "benchmark")]
    return {
        "benchmark": ", ".join(benchmarks),
        "model": str(policy.get("name", "")),
        "harness": str(_tables(config, "harness")[0].get("use", "")),
    }


def _tables(config: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    """The table or array of tables of this name, at least one."""
    value = config.get(key)
    tables = value if isinstance(value, list) else [value]
    return [t for t in tables if isinstance(t, Mapping)] or [{}]


def _errors(attempts: Iterable[Attempt]) -> dict[str, tuple[int, str]]:
    """Category → how many, and the message of the first."""
    errors: dict[str, tuple[int, str]] = {}
    for attempt in attempts:
        if attempt.error is not None:
            n, example = errors.get(attempt.error, (0, attempt.message))
            errors[attempt.error] = (n + 1, example)
    return errors

"""Observers of a run: told in order, off the loop, and isolated from each other."""

import time

import pytest

from rllm_core import hookimpl
from rllm_core.plugins import Plugins


class Recorder:
    """Takes fewer arguments than the hook offers, and needs no mark."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def rllm_step_finished(self, step):
        self.seen.append(step)

    @hookimpl
    def rllm_run_finished(self, run, summary):
        self.seen.append(summary)


class Failing:
    def __init__(self) -> None:
        self.calls = 0

    def rllm_step_finished(self, step):
        self.calls += 1
        raise SystemExit(step)


async def test_events_arrive_in_order_whatever_others_do(caplog) -> None:
    recorder, failing = Recorder(), Failing()
    events = Plugins.installed().hooks([failing, recorder])
    for step in range(5):
        events.call("rllm_step_finished", run=None, step=step, metrics={})
    events.call("rllm_run_finished", run=None, summary={"reward": 1.0})
    await events.close()
    assert recorder.seen == [0, 1, 2, 3, 4, {"reward": 1.0}]
    assert failing.calls == 3
    assert len(events.problems) == 3
    assert events.problems[-1].endswith("it is switched off")


async def test_a_slow_observer_does_not_hold_the_caller(caplog) -> None:
    class Slow:
        def rllm_step_finished(self, step):
            time.sleep(0.5)

    events = Plugins.installed().hooks([Slow()])
    started = time.monotonic()
    events.call("rllm_step_finished", run=None, step=1, metrics={})
    assert time.monotonic() - started < 0.2
    await events.close(within=0.05)
    assert "hangs" in events.problems[0]


async def test_nobody_to_tell() -> None:
    events = Plugins.installed().hooks([])
    events.call("rllm_step_finished", run=None, step=1, metrics={})
    await events.close()
    assert events.problems == []


def test_a_misspelt_event_is_an_error() -> None:
    class Misspelt:
        @hookimpl
        def rllm_step_finishd(self, step): ...

    with pytest.raises(Exception, match="rllm_step_finishd"):
        Plugins.installed().hooks([Misspelt()])

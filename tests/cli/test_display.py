"""What a run prints: to a terminal, to a file, in a C locale, in a narrow window."""

import io
import os
import pty
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rllm_core.cli.account import account_line
from rllm_core.cli.display import Display
from rllm_core.cli.typography import ASCII, UNICODE, Typography, duration, number
from rllm_core.statistics import Attempt, Estimate, summarize
from rllm_core.types import Episode, ErrorRecord, Failed, Missing, Score, Step, Stop, Trajectory

ROOT = Path(__file__).parents[2]
RUN = {
    "id": "7f3a",
    "kind": "train",
    "directory": "/runs/7f3a",
    "benchmark": "arithmetic",
    "model": "smollm2-135m",
    "harness": "react",
    "backend": "local",
    "algorithm": "grpo",
    "steps": 40,
}


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    """Eighty columns of UTF-8 and no colour, whatever runs the tests."""
    for name in ("LC_ALL", "LC_CTYPE", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    monkeypatch.setenv("COLUMNS", "80")


def episode(i, value=1.0, *, error=None, stop=Stop.DONE, finish="stop"):
    step = Step(f"s{i}", output_ids=range(10), logprobs=[-0.1] * 10, finish=finish)
    return Episode(
        f"eval-{i}-0",
        f"t{i}",
        0,
        (Trajectory(steps=(step,)),),
        score=None if error else Score(value),
        error=ErrorRecord(error, "it died") if error else None,
        stop=stop,
    )


def printed(act, *, encoding="utf-8", **options):
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, newline="")
    with Display(stream, **options) as display:
        act(display)
    stream.flush()
    return buffer.getvalue().decode(encoding)


def a_training(display):
    display.run_started(RUN)
    outcomes = []
    for name, share in (("before", 4), ("after", 15)):
        episodes = [episode(i, float(i < share)) for i in range(16)]
        display.phase_started(name, 16)
        for each in episodes:
            display.episode_finished(name, each)
        display.phase_finished(name, summarize(episodes))
        outcomes += episodes
        for step in range(40 if name == "before" else 0):
            reward = {"reward": step / 40, "reward_se": 0.04, "informative": 0.81}
            cost = {"tokens": 3120, "seconds": 1.9, "staleness": 0, "errors": float(step == 9)}
            display.step_finished(step, {**reward, **cost})
    display.run_finished(
        {
            "status": "finished",
            "summary": summarize(outcomes),
            "events": {"retried": 2},
            "next": ["rllm runs show 7f3a"],
        }
    )


def test_a_training_run_reads_like_the_design():
    lines = printed(a_training).splitlines()
    assert lines[0].startswith("arithmetic · smollm2-135m · react · local · grpo  ")
    assert lines[0].endswith("run 7f3a  /runs/7f3a")
    assert lines[1] == "before training  accuracy 0.25 ± 0.11 (16 tasks)"
    assert lines[2].split() == ["step", "reward", "informative", "tokens", "step", "s", "staleness"]
    assert lines[3].split() == ["2", "0.01", "±", "0.03", "▁▁", "0.81", "3,120", "1.9", "0.0"]
    assert lines[7].endswith("0.0  1 error")
    table = [line for line in lines if line.lstrip()[:1].isdigit()]
    assert len(table) == 20
    assert table[-1].split()[0] == "40"
    assert "▇" in table[-1]
    assert all(len(line) <= 80 for line in table if "error" not in line)
    assert lines[-3] == "accuracy 0.25 ± 0.11 → 0.94 ± 0.06 (16 tasks)"
    assert lines[-2] == ("account: 32 episodes · 0 errors · 0 truncated · 0 ungraded · 2 retried")
    assert lines[-1] == "next: rllm runs show 7f3a"


def test_an_evaluation_shows_both_readings_of_errors():
    episodes = [episode(i, float(i < 2)) for i in range(6)]
    episodes += [episode(i, error="infra", stop=Stop.ERROR) for i in (6, 7)]

    def act(display):
        display.run_started({"id": "1", "kind": "eval", "benchmark": "gsm8k"})
        display.phase_started("gsm8k", 8)
        for each in episodes:
            display.episode_finished("gsm8k", each)
        display.phase_finished("gsm8k", summarize(episodes))
        display.run_finished({"status": "finished", "summary": summarize(episodes)})

    lines = printed(act).splitlines()
    assert lines[1] == "gsm8k  accuracy 0.25 ± 0.16 (8 tasks) · 95 % interval 0.07 to 0.59"
    assert lines[2] == "  counting 2 errors as wrong; 0.33 ± 0.21 over the 6 graded alone"
    assert lines[3] == "account: 8 episodes · 2 errors (2 infra) · 0 truncated · 0 ungraded"


def test_without_a_terminal_a_line_comes_now_and_then():
    def act(display):
        display.phase_started("gsm8k", 100, 40)
        for i in range(10):
            display.episode_finished("gsm8k", episode(i, float(i % 2)))
        display.episode_finished("gsm8k", episode(10, error="timeout", stop=Stop.TIMEOUT))

    lines = printed(act, plain_seconds=0.0).splitlines()
    assert lines[0] == "40 of 100 episodes were finished before"
    assert lines[1].startswith("gsm8k  41/100  0.00 · ")
    assert lines[-1].startswith("gsm8k  51/100  0.45 ± 0.16 · errors: 1 timeout · ")
    assert len(printed(act, plain_seconds=60.0).splitlines()) == 1


@pytest.mark.parametrize("variable", ["LC_ALL", "LC_CTYPE", "LANG"])
def test_a_c_locale_gets_ascii(monkeypatch, variable):
    monkeypatch.setenv(variable, "C")
    text = printed(a_training)
    assert text.isascii()
    assert "accuracy 0.25 +- 0.11 -> 0.94 +- 0.06" in text
    assert "#" in text


def test_a_stream_that_cannot_encode_gets_ascii():
    assert printed(a_training, encoding="latin-1").isascii()
    assert Typography.of(io.StringIO(), {}) is UNICODE


def test_what_comes_from_outside_cannot_write_to_the_terminal():
    text = printed(lambda display: display.note("a\x1b[31m\nred \ud800 [bold]ü[/bold] :smile:"))
    assert text == "a\\x1b[31m red \\ud800 [bold]ü[/bold] :smile:\n"
    assert ASCII.clean("ü") == "\\xfc"


def test_a_narrow_window_drops_columns_and_breaks_no_row(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = printed(a_training).splitlines()
    assert lines[0] == "arithmetic · smollm2-135m · react · local · grpo"
    assert lines[1] == "run 7f3a  /runs/7f3a"
    assert lines[3].split() == ["step", "reward"]
    assert all(len(line) <= 40 for line in lines[3:24] if "error" not in line)


def test_a_run_that_ends_badly_says_why_and_shows_the_steps_it_made():
    def act(display):
        display.run_started(RUN)
        display.step_finished(0, {})
        display.run_finished({"status": "failed", "reason": "the disk is full"})

    lines = printed(act).splitlines()
    assert lines[-2].split() == ["1", "no", "grade"]
    assert lines[-1] == "failed: the disk is full"


def test_the_account_names_every_category():
    attempts = [
        Attempt("a", 1.0, truncated=True, calls=3, untrainable=1),
        Attempt("b", Missing("no judge")),
        Attempt("c", Failed("boom"), error="score"),
        Attempt("d", Missing("x"), error="infra", stop=Stop.ERROR),
        Attempt("e", Missing("x"), error="timeout", stop=Stop.TIMEOUT),
        Attempt("f", 0.0, stop=Stop.MAX_TURNS),
    ]
    line = account_line(summarize(attempts), {"skipped batches": 2}, UNICODE, trained=True)
    assert line == (
        "account: 6 episodes · 3 errors (1 infra, 1 score, 1 timeout) · 1 truncated"
        " · 2 ungraded (1 no judge; 1 scorer failed: boom) · ended early: 1 max turns"
        " · 1 of 3 calls untrainable · 2 skipped batches"
    )


def test_numbers_and_curves():
    assert [number(x) for x in (0.385, -1.0, 12345.6)] == ["0.39", "-1.00", "12,346"]
    assert [duration(s) for s in (0.4, 80, 7500)] == ["0 s", "1 min 20 s", "2 h 05 min"]
    assert UNICODE.curve([0.0, 0.5, 1.0]) == "▁▅█"
    assert UNICODE.curve([-2.0, 0.0, 2.0]) == "▁▅█"
    assert UNICODE.curve([3.0, 3.0]) == "▁▁"
    assert len(UNICODE.curve([0.1] * 1000, 12)) == 12
    assert UNICODE.curve([]) == ""
    assert UNICODE.estimate(None) == "no grade"
    assert UNICODE.estimate(Estimate(0.5, None, 1, 1)) == "0.50"


PROGRAM = """
    import time
    from tests.cli.test_display import Display, a_training, episode
    with Display() as display:
        display.phase_started("gsm8k", 20)
        for i in range(10):
            display.episode_finished("gsm8k", episode(i, i % 2))
            time.sleep(0.06)
        display.note("in between")
        if {fails}:
            raise KeyboardInterrupt
        a_training(display)
"""


def on_a_terminal(fails, **environ):
    """What the program writes to a pseudo-terminal, escapes included."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **environ}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM).replace("{fails}", str(fails))],
        stdout=theirs, stderr=subprocess.DEVNULL, env=env,
    )  # fmt: skip
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:  # the other end has closed
        pass
    process.wait(20)
    os.close(ours)
    return written.decode()


def test_on_a_terminal_the_last_line_lives():
    text = on_a_terminal(fails=False)
    assert re.search(r"gsm8k ━+╌+ \d+/20  0\.\d\d ± ", text)
    assert text.count("/20") >= 2
    assert "\rin between\r\n" in text.replace("\x1b[2K", "")
    assert "accuracy 0.25 ± 0.11 → 0.94 ± 0.06" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_an_interrupt_gives_the_cursor_back():
    text = on_a_terminal(fails=True)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_dumb_terminal_gets_plain_lines():
    assert "\x1b" not in on_a_terminal(fails=False, TERM="dumb")


def test_no_color_is_heeded():
    assert "\x1b[3" not in on_a_terminal(fails=False, NO_COLOR="1")

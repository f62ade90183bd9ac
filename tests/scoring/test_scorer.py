"""Evaluator functions and named scorers: what they may return, and what is refused."""

import asyncio
import time

import pytest

import rllm
from rllm_core.errors import ConfigError, ScoreError
from rllm_core.scoring import Scorer, load_scorer
from rllm_core.types import Episode, Failed, Missing, Score, Task

TASK = Task.of("2 + 2?", id="t", private={"answer": "4"})


def episode(output="4"):
    return Episode("e", "t", output=output)


async def score(function, output="4", **options):
    return await Scorer(function, **options).score(TASK, episode(output), "the context")


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (Score(0.5, parts={"form": 1.0}), 0.5),
        (Missing("no judge"), Missing("no judge")),
        (Failed("judge down"), Failed("judge down")),
    ],
)
async def test_what_an_evaluator_may_return(returned, value):
    async def asynchronous(task, episode):
        return returned

    assert (await score(lambda task, episode: returned)).value == value
    assert (await score(asynchronous)).value == value


@pytest.mark.parametrize("returned", [None, "1", float("nan"), float("inf"), [1]])
async def test_what_it_may_not(returned):
    def mine(task, episode):
        return returned

    with pytest.raises(ScoreError) as caught:
        await score(mine)
    assert "mine" in str(caught.value)
    assert "a finite number" in str(caught.value)


async def test_the_context_is_passed_to_those_that_take_it():
    @rllm.evaluator
    def three(task, episode, ctx):
        return float(ctx == "the context")

    @rllm.evaluator
    def optional(task, episode, tolerance=0.5):
        return tolerance

    @rllm.evaluator
    def by_name(task, episode, ctx=None):
        return float(ctx == "the context")

    assert [(await score(f)).value for f in (three, optional, by_name)] == [1.0, 0.5, 1.0]


async def test_exceptions_pass_through():
    def broken(task, episode):
        return task.private["missing column"]

    with pytest.raises(KeyError, match="missing column"):
        await score(broken)

    def own_timeout(task, episode):
        raise TimeoutError("my own service")

    with pytest.raises(TimeoutError, match="my own service"):
        await score(own_timeout)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_one_that_waits_too_long_is_stopped(kind):
    async def asynchronous(task, episode):
        await asyncio.sleep(20)

    function = asynchronous if kind == "async" else (lambda task, episode: time.sleep(3))
    begun = time.monotonic()
    with pytest.raises(ScoreError, match=r"took more than 0\.05 s"):
        await score(function, seconds=0.05)
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("function", [lambda: 1, lambda task: 1, lambda a, b, c, d: 1, 3])
def test_wrong_signatures_are_refused_at_once(function):
    with pytest.raises(ConfigError):
        rllm.evaluator(function)


@pytest.mark.parametrize(
    ("name", "output", "answer", "value"),
    [
        ("exact", " 4\n", "4", 1.0),
        ("exact", "4.", "4", 0.0),
        ("exact", "cafe\u0301", "café", 1.0),
        ("exact", "b", ["a", "b"], 1.0),
        ("exact", "4", 4, 1.0),
        ("contains", "It is Paris.", "paris", 1.0),
        ("contains", "It is Paris.", "", 0.0),
        ("number", "so 3 + 1 = 4.0", "4", 1.0),
        ("number", "4 or 5", "4", 0.0),
        ("number", "no idea", "4", 0.0),
    ],
)
async def test_named_scorers(name, output, answer, value):
    task = Task.of("?", id="t", private={"answer": answer})
    assert (await load_scorer(name).score(task, episode(output))).value == value


async def test_without_an_answer_there_is_no_score():
    for private in ({}, {"answer": None}, {"answer": []}):
        got = await load_scorer("exact").score(Task.of("?", id="t7", private=private), episode())
        assert isinstance(got.value, Missing)
        assert "t7" in got.value.reason


def test_unknown_names_and_references():
    with pytest.raises(ConfigError, match="no scorer 'exakt'") as caught:
        load_scorer("exakt")
    assert "did you mean 'exact'" in str(caught.value)
    with pytest.raises(ConfigError, match="no module"):
        load_scorer("no_such_module:score")
    assert load_scorer("operator:eq").name == "_operator:eq"


async def test_named_scorers_are_fast_on_huge_outputs():
    task = Task.of("?", id="t", private={"answer": "4"})
    for output in ("1," * 300_000, "-" * 600_000, "111," * 150_000 + "1111", "#### " * 120_000):
        begun = time.monotonic()
        for name in ("exact", "contains", "number"):
            await load_scorer(name).score(task, episode(output))
        assert time.monotonic() - begun < 3

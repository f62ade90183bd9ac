"""Arithmetic: the questions of each level, their splits, and what counts as an answer."""

import importlib.metadata

import pytest
from rllm_benchmark_arithmetic import Arithmetic, rllm_benchmark
from rllm_benchmark_arithmetic.levels import LEVELS

from rllm_core.benchmark import ScoreContext
from rllm_core.errors import ConfigError
from rllm_core.harness.tools import load_tools, run_tool
from rllm_core.testing import BenchmarkConformance
from rllm_core.types import Episode


def make(**options):
    return Arithmetic(Arithmetic.Options(**options))


def questions(benchmark, split):
    return {t.messages[-1]["content"] for t in benchmark.tasks(split)}


def test_the_entry_point_leads_here():
    (point,) = importlib.metadata.entry_points(group="rllm.benchmarks", name="arithmetic")
    assert point.load().rllm_benchmark() is rllm_benchmark() is Arithmetic


def test_add1_is_asked_as_measured():
    """The wording decides the base rate: it is that of the measured runs, to the letter."""
    first, *turns, _ = next(iter(make().tasks("train"))).messages
    assert first == {"role": "system", "content": "Answer exactly in the form of the examples."}
    assert [(t["role"], t["content"]) for t in turns] == [
        ("user", "What is 6 + 6? Reply with only the number."),
        ("assistant", "12"),
        ("user", "What is 3 + 9? Reply with only the number."),
        ("assistant", "12"),
        ("user", "What is 2 + 3? Reply with only the number."),
        ("assistant", "5"),
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_tasks_are_the_same_every_time_and_test_tasks_all_differ(level):
    first, again = make(level=level, train_size=50), make(level=level, train_size=50)
    for split in first.splits:
        assert list(first.tasks(split)) == list(again.tasks(split))
    tests = list(first.tasks("test"))
    assert len(tests) == len(questions(first, "test")) == min(128, len(first.pools["test"]))


@pytest.mark.parametrize("level", LEVELS)
async def test_gold_scores_one_and_all_else_zero(level):
    benchmark = make(level=level)
    for task in list(benchmark.tasks("test"))[:20]:
        gold = task.private["answer"]
        question = task.messages[-1]["content"]
        for output, value in (
            (gold, 1),
            (f" {gold}.\n", 1),
            ("", 0),
            (question, 0),
            (f"={gold}", 0),
        ):
            score = await benchmark.score(
                task, Episode("e", task.id, output=output), ScoreContext()
            )
            assert score.value == value


@pytest.mark.parametrize("level", ["add2", "sort2"])
def test_large_levels_keep_test_questions_out_of_training(level):
    benchmark = make(level=level, train_size=3000)
    assert not questions(benchmark, "train") & questions(benchmark, "test")


def test_add1_keeps_them_apart_when_asked():
    apart, shared = make(holdout=True, train_size=3000), make(train_size=3000)
    assert not questions(apart, "train") & questions(apart, "test")
    assert len(questions(apart, "train")) == 78
    assert questions(shared, "test") <= questions(shared, "train")
    assert len(questions(shared, "test")) == 97


def test_shown_examples_are_never_asked():
    benchmark = make(train_size=3000)
    for split in benchmark.splits:
        assert "What is 6 + 6? Reply with only the number." not in questions(benchmark, split)


async def test_the_tool_runs_and_its_examples_are_whole():
    task = next(iter(make(level="tool").tasks("test")))
    roles = [m["role"] for m in task.messages]
    assert roles == ["system", *["user", "assistant", "tool", "assistant"] * 3, "user"]
    call = task.messages[2]["tool_calls"][0]
    assert call["id"] == task.messages[3]["tool_call_id"]
    result = await run_tool(load_tools(task), call, 5)
    assert result["content"] == task.messages[3]["content"] == "12"


def test_the_levels_of_the_tiny_model_fit_its_vocabulary():
    for level in ("copy1", "succ"):
        for task in make(level=level).tasks("test"):
            assert set(task.text + task.private["answer"]) <= set("0123456789=+ab\n#")
            assert len(task.messages) == 1
    nine = next(t for t in make(level="succ").tasks("test") if t.text == "9=")
    assert nine.private["answer"] == "0"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "add3"}, "'level' must be in"),
        ({"test_size": 98}, "has 97 test questions"),
        ({"test_size": 0}, "'test_size' must be >= 1"),
        ({"train_size": 0}, "'train_size' must be >= 1"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises((ConfigError, ValueError), match=message):
        make(**options)


class TestAdd1(BenchmarkConformance):
    benchmark = Arithmetic


class TestSort2(BenchmarkConformance):
    benchmark = Arithmetic
    options = {"level": "sort2"}


class TestTool(BenchmarkConformance):
    benchmark = Arithmetic
    options = {"level": "tool"}

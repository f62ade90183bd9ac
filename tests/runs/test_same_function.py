"""One rollout function, evaluated and trained: the same model gives the same rewards."""

import importlib.util

import pytest

import rllm
from rllm_core.errors import ConfigError

FUNCTIONS = ("says", "says_sync", "says_nothing", "trajectory", "episode")
SETTINGS = {
    "model": "tiny",
    "backend": "table",
    "max_tokens": 1,
    "quiet": True,
}
LEVEL = {"benchmark.level": "copy1"}


@pytest.fixture
def module(agent):
    """The module of agents, imported."""
    spec = importlib.util.spec_from_file_location("agents", agent("").rstrip(":"))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def rewards(read):
    """rewards(finished, phase): the reward of every attempt by task."""

    def call(finished, phase):
        episodes = list(read(finished.directory).episodes(phase))
        assert [e.error for e in episodes] == [None] * len(episodes)
        return {(e.task_id, e.attempt): e.reward for e in episodes}

    return call


@pytest.mark.parametrize("name", FUNCTIONS)
def test_evaluated_and_validated_it_earns_the_same(module, rewards, read, name):
    function = getattr(module, name)
    trained = rllm.train(
        function, "arithmetic", **SETTINGS, steps=25, group_size=4, scorer=module.exact,
        options={**LEVEL, "run.groups_per_step": 4},
    )  # fmt: skip
    settings = {**SETTINGS, "model": trained.id, "temperature": 0.0}
    evaluated = rllm.evaluate(
        function, "arithmetic", **settings, scorer=module.exact_async, options=LEVEL
    )
    found = rewards(evaluated, "arithmetic")
    assert found == rewards(trained, "after")
    assert 0.1 < sum(found.values()) / 10 <= 1.0
    before = trained.results["before"].accuracy.mean
    assert trained.results["after"].accuracy.mean > before
    steps = [s for e in read(trained.directory).episodes("train") for s in e.steps]
    assert all(s.untrainable is None and s.logprobs for s in steps)


def test_sampled_with_equal_seeds_it_earns_the_same_under_any_return_type(module, rewards):
    settings = {**SETTINGS, "temperature": 1.0, "attempts": 4}
    found = [
        rewards(
            rllm.evaluate(getattr(module, name), "arithmetic", **settings, options=LEVEL),
            "arithmetic",
        )
        for name in FUNCTIONS
    ]
    assert all(each == found[0] for each in found)
    assert 0 < sum(found[0].values()) < 40


def test_what_a_function_says_of_itself_is_kept(module, read):
    kept = rllm.evaluate(module.episode, "arithmetic", **SETTINGS, options=LEVEL)
    assert all(e.metrics["asked"] == 1.0 for e in read(kept.directory).episodes())
    kept = rllm.evaluate(module.trajectory, "arithmetic", **SETTINGS, options=LEVEL)
    for episode in read(kept.directory).episodes():
        assert episode.trajectory("policy").metadata == {"kind": "trajectory"}
        assert len(list(episode.steps)) == 1


async def test_it_works_where_a_loop_runs_already(module):
    finished = rllm.evaluate(module.says, "arithmetic", **SETTINGS, options=LEVEL)
    assert finished.results["arithmetic"].episodes == 10


def test_a_python_call_with_a_mistake_names_it_and_starts_nothing(module, home):
    with pytest.raises(ConfigError, match="atempts"):
        rllm.evaluate(module.says, "arithmetic", **SETTINGS, atempts=2)
    with pytest.raises(ConfigError, match="lavel"):
        rllm.evaluate(module.says, "arithmetic", **SETTINGS, options={"benchmark.lavel": "add1"})
    with pytest.raises(ConfigError, match="cannot be called"):
        rllm.evaluate(lambda task: "1", "arithmetic", **SETTINGS)
    assert not home.exists()

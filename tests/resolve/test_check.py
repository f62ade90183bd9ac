"""The chosen combination is checked before anything starts."""

import pytest
from attrs import evolve, field, frozen

from rllm_core.backend import Backend, BackendCapabilities
from rllm_core.benchmark import Benchmark, BenchmarkCapabilities
from rllm_core.config import load, to_toml
from rllm_core.errors import ConfigError
from rllm_core.harness import Harness, HarnessCapabilities
from rllm_core.plugins import Plugins
from rllm_core.plugins.index import Entry, Index
from rllm_core.providers import set_default_model
from rllm_core.resolve import Resolved, check
from rllm_core.types import Score, Task


class Plain(Harness):
    @frozen
    class Options:
        turns: int = field(default=3)

        def __attrs_post_init__(self) -> None:
            if self.turns == 13:
                raise ValueError("'turns' must not be 13")


class Boxed(Harness):
    capabilities = HarnessCapabilities(tools=True, needs_sandbox=True)


class Sums(Benchmark):
    splits = {"train": "train", "test": "test"}

    @frozen
    class Options:
        level: str = "easy"

    def __init__(self, options=None) -> None:
        super().__init__(options)
        if self.options.level == "odd":
            raise ConfigError("benchmark.level: there is no level 'odd'", remedy="easy")

    def tasks(self, split):
        yield Task.of("1 + 1")

    async def score(self, task, episode, ctx):
        return Score(1.0)


class Tools(Sums):
    capabilities = BenchmarkCapabilities(tools=True)


class Judged(Sums):
    capabilities = BenchmarkCapabilities(judge=True)


class Trains(Backend):
    capabilities = BackendCapabilities(losses=frozenset({"ppo_clip"}))


class Samples(Backend):
    capabilities = BackendCapabilities(trains=False, resumes=False)


CLASSES = {
    "harness": {"react": Plain, "boxed": Boxed},
    "benchmark": {"sums": Sums, "tools": Tools, "judged": Judged},
    "backend": {"local": Trains, "samples": Samples},
    "sandbox": {"box": Plain},
}


@pytest.fixture
def plugins() -> Plugins:
    """A host whose plugins are the classes of this file, beside the core's grpo."""
    core = Plugins.installed().entry("algorithm", "grpo")
    entries: dict[tuple[str, str], tuple[Entry, ...]] = {("algorithm", "grpo"): (core,)}
    loaded = {}
    for kind, classes in CLASSES.items():
        for name, cls in classes.items():
            entries[kind, name] = (evolve(core, kind=kind, name=name),)
            loaded[kind, name, core.package] = cls
    return Plugins(Index(entries), loaded)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RLLM_HOME", str(tmp_path))


EVAL = {"benchmark": "sums", "models": {"policy": "vllm/m"}}
TRAIN = {"run": {"kind": "train"}, "benchmark": "sums", "models": {"policy": "tiny"}}


def resolve(plugins: Plugins, base: dict, *overrides: str, **rest) -> Resolved:
    config = load(values=base, environ={}, overrides=[])
    again = load(text=to_toml(config), environ={}, overrides=overrides)
    return check(again, plugins, environ={}, **rest)


def test_an_evaluation_of_a_served_model(plugins) -> None:
    run = resolve(plugins, EVAL)
    assert run.benchmarks[0].cls is Sums
    assert run.benchmarks[0].table.split == "test"
    assert run.harness.options == Plain.Options(3)
    assert (run.backend, run.algorithm) == (None, None)
    assert load(text=to_toml(run.config), environ={}) == run.config
    assert "level" in to_toml(run.config)


def test_an_evaluation_of_local_weights_brings_its_backend(plugins) -> None:
    run = resolve(plugins, EVAL, "models.policy.name=tiny")
    assert run.backend.cls is Trains
    assert (
        check(load(text=to_toml(run.config), environ={}), plugins, environ={}).config == run.config
    )


def test_training(plugins) -> None:
    run = resolve(plugins, TRAIN, "validation.use=sums")
    assert (run.backend.cls, run.algorithm.name) == (Trains, "grpo")
    assert run.benchmarks[0].table.split == "train"
    assert run.validation.table.split == "test"
    assert "clip_high" in to_toml(run.config)


REFUSED = [
    (EVAL, ["benchmark.use=sum"], "benchmark.use: unknown benchmark 'sum'", "did you mean 'sums'?"),
    (
        EVAL,
        ["benchmark.levl=1"],
        "benchmark.levl: unknown option of benchmark 'sums'",
        "did you mean 'level'?",
    ),
    (
        EVAL,
        ["benchmark.level=odd"],
        "benchmark.level: there is no level 'odd' ('benchmark.level=odd'",
        "easy",
    ),
    (
        EVAL,
        ["benchmark.split=tets"],
        "benchmark.split: benchmark 'sums' has no split 'tets'",
        "its splits are train, test",
    ),
    (EVAL, ["benchmark.file=x.jsonl"], "benchmark.file: benchmark 'sums' reads no file", ""),
    (
        EVAL,
        ["harness.turn=1"],
        "harness.turn: unknown option of harness 'react'",
        "`rllm plugins show harness/react`",
    ),
    (EVAL, ["harness.turns=13"], "harness.turns: must not be 13", ""),
    (EVAL, ["harness.use=nowhere:solver"], "harness.use: there is no module 'nowhere'", ""),
    (EVAL, ["scorer.use=exct"], "scorer.use: there is no scorer 'exct'", "did you mean 'exact'?"),
    (EVAL, ["scorer.use=exact", "scorer.x=1"], "scorer.x: a scorer has no options", ""),
    (
        EVAL,
        ["models.policy.name=openai/m"],
        "models.policy: model 'openai/m' needs a key, and OPENAI_API_KEY is not set",
        "export OPENAI_API_KEY",
    ),
    (EVAL, ["models.policy.base_url=x"], "models.policy: base_url 'x' is no http address", ""),
    (
        EVAL,
        ["models.policy.name=tiny", "models.policy.api_key_env=X"],
        "models.policy.api_key_env: model 'tiny' is loaded on this machine",
        "leave it out",
    ),
    (
        EVAL,
        ["backend.use=local"],
        "backend: has no effect: model 'vllm/m' is served by",
        "leave it out",
    ),
    (EVAL, ["models.judge.name=vllm/j"], "models.judge: has no effect", "leave it out"),
    (
        EVAL,
        ["models.teacher.name=vllm/j"],
        "models.teacher: has no effect",
        "",
    ),
    (
        EVAL,
        ["sandbox.use=box"],
        "sandbox: has no effect: neither harness 'react' nor the benchmark",
        "leave it out",
    ),
    (
        EVAL,
        ["harness.use=boxed"],
        "sandbox: harness 'boxed' needs a sandbox, and none is chosen",
        "installed: box",
    ),
    (
        EVAL,
        ["benchmark.use=tools"],
        "harness.use: harness 'react' cannot offer a task's tools to the model, which benchmark 'tools' needs",
        "who can: boxed",
    ),
    (
        EVAL,
        ["benchmark.use=judged"],
        "models.judge: benchmark 'judged' is scored by a model, and none is named",
        "--scorer NAME",
    ),
    (
        EVAL,
        ["trackers.use=wandb"],
        "trackers.use: unknown tracker 'wandb'",
        "pip install rllm-tracker-wandb",
    ),
    (TRAIN, ["models.policy.name=vllm/m"], "models.policy.name: 'vllm/m' is served by", "hf/m"),
    (
        TRAIN,
        ["run.group_size=1"],
        "run.group_size: algorithm 'grpo' compares at least 2 attempts, not 1",
        "run.group_size=2",
    ),
    (
        TRAIN,
        ["backend.use=samples"],
        "backend.use: backend 'samples' cannot train",
        "who can: local",
    ),
    (
        TRAIN,
        ["backend.use=samples"],
        "algorithm: backend 'samples' cannot honour the loss 'ppo_clip' of algorithm 'grpo'",
        "honoured by: local",
    ),
    (
        TRAIN,
        ["models.critic.name=tiny"],
        "models.critic: has no effect: the roles that this run calls are policy",
        "",
    ),
    (
        {**TRAIN, "run": {"kind": "train", "checkpoint_every": 5}},
        ["backend.use=samples"],
        "run.checkpoint_every: backend 'samples' cannot save and resume",
        "",
    ),
    (
        TRAIN,
        ["models.policy.temperature=0"],
        "models.policy.temperature: at temperature 0 all attempts at a task would be the same",
        "above 0",
    ),
    (
        TRAIN,
        ["algorithm.aggregation=seq-mean"],
        "algorithm.aggregation: must be one of token-mean, sequence-mean, token-sum",
        "",
    ),
    (TRAIN, ["algorithm.clip_low=1"], "algorithm.clip_low: must be above 0 and below 1", ""),
    (TRAIN, ["algorithm.clip_high=inf"], "algorithm.clip_high: must be a finite number", ""),
    (TRAIN, ["algorithm.clip_high=nan"], "algorithm.clip_high: must be a finite number", ""),
    (TRAIN, ["algorithm.ddof=2"], "algorithm.ddof: must be 0 or 1, not 2", ""),
    ({"benchmark": "sums"}, [], "models.policy: no model is named", "`rllm model use NAME`"),
    ({"models": {"policy": "vllm/m"}}, [], "no benchmark is named", ""),
]


@pytest.mark.parametrize(
    ("base", "overrides", "what", "remedy"), REFUSED, ids=[r[2][:50] for r in REFUSED]
)
def test_what_cannot_work_is_refused(plugins, base, overrides, what, remedy) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(plugins, base, *overrides)
    message = str(caught.value)
    assert what in message
    assert remedy in message


def test_the_default_model_is_for_evaluations_that_name_neither_model_nor_server(plugins) -> None:
    set_default_model("vllm/mine")
    run = resolve(plugins, {"benchmark": "sums"})
    assert run.policy.model == "mine"
    assert run.config.policy.name == "vllm/mine"
    for base in ({"benchmark": "sums", "models": {"policy": {"base_url": "http://h/v1"}}},
                 {"run": {"kind": "train"}, "benchmark": "sums"}):  # fmt: skip
        with pytest.raises(ConfigError, match="no model is named"):
            resolve(plugins, base)


def test_every_problem_is_told_at_once(plugins) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(plugins, EVAL, "benchmark.use=x", "harness.use=y", "models.policy.name=z")
    assert [str(p).partition(":")[0] for p in caught.value.problems] == [
        "models.policy",
        "benchmark.use",
        "harness.use",
    ]


def test_a_user_s_own_functions_take_part(plugins) -> None:
    async def solver(task, ctx):
        return "2"

    def exact(task, episode):
        return 1.0

    run = resolve(
        plugins, {**EVAL, "benchmark": "tools"}, objects={"harness": solver, "scorer": exact}
    )
    assert run.harness.make().function is solver
    assert run.scorer.function is exact


def test_a_file_of_tasks_is_a_benchmark(plugins, tmp_path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"prompt": "1 + 1", "answer": "2"}\n')
    run = resolve(plugins, EVAL, f"benchmark.use='{tasks}'")
    assert [task.text for task in run.benchmarks[0].make().tasks("all")] == ["1 + 1"]
    again = check(load(text=to_toml(run.config), environ={}), plugins, environ={})
    assert again.config == run.config


@pytest.mark.parametrize(
    "setting", ["eval_every=2", "eval_temperature=1", "require_gain=0", "require_gain=2"]
)
def test_validation_settings_need_tasks_to_validate_on(plugins, tmp_path, setting) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"prompt": "1 + 1", "answer": "2"}\n')
    words = (f"benchmark.use='{tasks}'", f"run.{setting}")
    with pytest.raises(ConfigError, match=r"has no tasks to validate on(.|\n)*validation.use=NAME"):
        resolve(plugins, TRAIN, *words)
    assert resolve(plugins, TRAIN, *words, "validation.use=sums").validation is not None
    assert resolve(plugins, TRAIN, f"run.{setting}").validation is None  # its own test split
    stored = resolve(plugins, TRAIN, words[0]).config
    assert check(load(text=to_toml(stored), environ={}), plugins, environ={}).config == stored

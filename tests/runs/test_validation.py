"""Training on one thing, validating on another."""

import json

import pytest

TRAIN = ("train", "arithmetic", "benchmark.level=copy1", "--model", "tiny", "--backend", "table")


@pytest.fixture
def validated(rllm, tmp_path, read):
    """The prompts of the tasks that a training run of two steps was validated on."""

    def call(*words):
        short = ("--steps", 2, "--group-size", 2, "run.groups_per_step=2", "--max-tokens", 1)
        ended = rllm(*TRAIN, *short, "--run-dir", tmp_path / "run", *words)
        assert ended.code == 0, ended.err
        reader = read(tmp_path / "run")
        assert {p for p in reader.phases() if p != "train"} <= {"before", "after"}
        before, after = (
            [e.task_id for e in reader.episodes(phase)] for phase in ("before", "after")
        )
        assert sorted(before) == sorted(after)
        first = [e.steps for e in reader.episodes("before")]
        return sorted(next(steps).messages[0]["content"] for steps in first)

    return call


def test_the_benchmarks_own_test_split_where_nothing_is_said(validated):
    assert validated() == [f"{d}=" for d in range(10)]


def test_another_level_and_fewer_tasks(validated):
    words = ("validation.use=arithmetic", "validation.level=succ", "validation.max=3")
    assert len(validated(*words)) == 3


def test_fewer_tasks_of_the_benchmark_trained_on(validated):
    assert len(validated("validation.max=4")) == 4


def test_a_file(validated, tmp_path):
    rows = [{"prompt": f"{d}+{d}=", "answer": str(2 * d)} for d in range(3)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert validated(f"validation.file={tmp_path / 'rows.jsonl'}") == ["0+0=", "1+1=", "2+2="]


def test_another_split_and_ids(validated, rllm):
    words = ("validation.use=arithmetic", "validation.level=copy1", "validation.split=train")
    assert len(validated(*words, "validation.skip=5", "validation.max=4")) == 4


def test_a_file_as_the_training_set_validates_on_what_is_named(rllm, tmp_path, read):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "1=", "answer": "1"}) + "\n")
    ended = rllm(
        "train", tmp_path / "rows.jsonl", *TRAIN[3:], "--steps", 1, "--max-tokens", 1,
        "validation.use=arithmetic", "validation.level=copy1", "--run-dir", tmp_path / "run",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    reader = read(tmp_path / "run")
    assert len(list(reader.attempts("before"))) == 10
    assert {e.task_id for e in reader.episodes("train")} != set()

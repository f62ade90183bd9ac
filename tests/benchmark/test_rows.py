"""Row benchmarks, their files, and the choice of tasks: what works and what is refused."""

import json

import pytest

from rllm_core.benchmark import GeneratedRows, RowBenchmark, ScoreContext, Task
from rllm_core.benchmark.file import FileBenchmark
from rllm_core.benchmark.selection import select
from rllm_core.errors import ConfigError
from rllm_core.types import Episode, Missing


class Squares(RowBenchmark):
    source = GeneratedRows(lambda split, index: {"n": index}, {"small": 3, "large": 1000})
    splits = {"train": "large", "test": "small"}
    answer_format = "Write the number."

    def task(self, row):
        return Task.of(f"{row['n']} squared?", private={"answer": row["n"] ** 2})

    def grade(self, task, output):
        return output == str(task.private["answer"])


def squares(**options):
    return Squares(Squares.Options(**options))


def test_rows_become_tasks_with_stable_unique_ids():
    first, second = list(squares().tasks("test")), list(squares().tasks("test"))
    assert first == second
    assert len({t.id for t in first}) == 3
    assert first[0].id.startswith("test-0-")
    assert first[2].prompt == "2 squared?\n\nWrite the number."


async def test_grading():
    task = list(squares().tasks("test"))[2]
    for output, value in (("4", 1.0), ("5", 0.0)):
        episode = Episode("e", task.id, output=output)
        assert (await squares().score(task, episode, ScoreContext())).value == value


def test_the_answer_format_follows_the_last_message():
    class Chat(Squares):
        def task(self, row):
            parts = [{"type": "text", "text": "look"}]
            return Task.of([{"role": "system", "content": "s"}, {"role": "user", "content": parts}])

    system, user = next(iter(Chat().tasks("test"))).messages
    assert system["content"] == "s"
    assert [p["text"] for p in user["content"]] == ["look", "Write the number."]


def test_a_file_takes_the_sources_place(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('\ufeff{"n": 7}\n\n{"n": 8}', encoding="utf-8")
    tasks = list(squares(file=str(file)).tasks("test"))
    assert [t.private["answer"] for t in tasks] == [49, 64]
    assert next(iter(squares(file=str(file)).tasks("train"))).id.startswith("train-0-")


def test_unknown_splits_name_those_there_are():
    with pytest.raises(ConfigError, match="no split 'dev'") as caught:
        list(squares().tasks("dev"))
    assert "train, test" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["is empty"]),
        (b"\n  \n", ["is empty"]),
        (b'{"n": 1}\n{"n": ', [":2: not valid JSON"]),
        (b'{"n": 1}\n[1, 2]\n', [":2: a list, where a row must be a JSON object"]),
        (b'{"n": 1}\n{"n": "\xff"}\n', [":2: not UTF-8 (byte 0xff at column 8)"]),
        (b'{"N": 1}\n', [":1: there is no column 'n'", "'N'", "did you mean 'N'"]),
        (b'{"n": "x"}\n', [":1: TypeError"]),
        (b"[" * 100_000, [":1: nested too deeply"]),
    ],
)
def test_bad_rows_name_file_line_and_fault(tmp_path, content, parts):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(content)
    if parts[-1] == "did you mean 'N'":
        parts = parts[:-1]  # one letter has no near name; the columns are listed
    with pytest.raises(ConfigError) as caught:
        list(squares(file=str(file)).tasks("test"))
    for part in parts:
        assert part in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_file_without_line_ends_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("rllm_core.benchmark.files.MAX_LINE", 1 << 20)
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b" " * (2 << 20))
    with pytest.raises(ConfigError, match="longer than 1 MiB"):
        list(squares(file=str(file)).tasks("test"))


def test_missing_files_offer_the_nearest(tmp_path):
    (tmp_path / "data.jsonl").write_text("{}")
    with pytest.raises(ConfigError, match="there is no file") as caught:
        list(squares(file=str(tmp_path / "dta.jsonl")).tasks("test"))
    assert "did you mean" in str(caught.value)
    with pytest.raises(ConfigError, match="is a directory"):
        list(squares(file=str(tmp_path)).tasks("test"))


def test_select():
    def ids(**choice):
        return [int(t.id.split("-")[1]) for t in select(squares().tasks("train"), **choice)]

    assert ids(max=3) == [0, 1, 2]
    assert ids(skip=998) == [998, 999]
    assert ids(skip=5, max=2) == [5, 6]
    shuffled = ids(shuffle=True, seed=1, max=5)
    assert shuffled == ids(shuffle=True, seed=1, max=5) != ids(shuffle=True, seed=2, max=5)
    assert ids(shuffle=True, seed=1, skip=2, max=3) == shuffled[2:]
    every = [t.id for t in squares().tasks("train")]
    assert ids(ids=[every[9], every[4], every[9]]) == [9, 4]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"ids": ["test-0"]}, "no task has the id 'test-0'"),
        ({"skip": 3}, "leaves out all 3"),
        ({"max": 0}, "at least 1"),
        ({"skip": -1}, "at least 0"),
    ],
)
def test_select_refuses(choice, message):
    with pytest.raises(ConfigError, match=message):
        select(squares().tasks("test"), **choice)


def test_select_refuses_nothing_and_doubles():
    with pytest.raises(ConfigError, match="no tasks"):
        select([])
    with pytest.raises(ConfigError, match="two tasks have the id 'a'"):
        select([Task("a", "x"), Task("a", "y")])


def test_select_reads_no_more_than_it_needs():
    def endless():
        number = 0
        while True:
            yield Task(str(number), "x")
            number += 1

    assert len(select(endless(), skip=2, max=3)) == 3


def write(path, *rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(path)


async def test_a_plain_file_is_a_benchmark(tmp_path):
    chat = [{"role": "user", "content": "3?"}]
    file = write(
        tmp_path / "d.jsonl",
        {"prompt": "1+1?", "answer": 2, "topic": "sums"},
        {"prompt": chat, "answer": ["3", "three"]},
    )
    benchmark = FileBenchmark(FileBenchmark.Options(file=file))
    first, second = benchmark.tasks("all")
    assert (first.private, first.metadata) == ({"answer": 2}, {"topic": "sums"})
    assert second.messages == chat
    for task, output in ((first, "2"), (second, "three")):
        score = await benchmark.score(task, Episode("e", task.id, output=output), ScoreContext())
        assert score.value == 1.0


async def test_columns_ids_and_scorer_can_be_named(tmp_path):
    file = write(tmp_path / "d.jsonl", {"q": "1+1?", "gold": "2", "key": 17})
    options = FileBenchmark.Options(file=file, prompt="q", answer="gold", id="key", scorer="number")
    benchmark = FileBenchmark(options)
    (task,) = benchmark.tasks("all")
    assert (task.id, task.prompt, task.metadata) == ("17", "1+1?", {})
    episode = Episode("e", "17", output="it is 2.0")
    assert (await benchmark.score(task, episode, ScoreContext())).value == 1.0


async def test_a_file_without_answers_is_not_graded(tmp_path):
    file = write(tmp_path / "d.jsonl", {"prompt": "1+1?"})
    benchmark = FileBenchmark(FileBenchmark.Options(file=file, answer=""))
    (task,) = benchmark.tasks("all")
    score = await benchmark.score(task, Episode("e", task.id, output="2"), ScoreContext())
    assert isinstance(score.value, Missing)


@pytest.mark.parametrize(
    ("row", "options", "parts"),
    [
        ({"promt": "x", "answer": 1}, {}, ["no column 'prompt'", "did you mean 'promt'?"]),
        ({"prompt": "x", "gold": 1}, {}, ["no column 'answer'", "benchmark.answer=COLUMN"]),
        ({"prompt": 3, "answer": 1}, {}, ["the prompt is a int"]),
        ({"prompt": [], "answer": 1}, {}, ["the prompt is a list"]),
        ({"prompt": "x", "answer": 1}, {"id": "key"}, ["no column 'key'"]),
    ],
)
def test_a_files_wrong_columns(tmp_path, row, options, parts):
    file = write(tmp_path / "d.jsonl", row)
    with pytest.raises(ConfigError) as caught:
        list(FileBenchmark(FileBenchmark.Options(file=file, **options)).tasks("all"))
    for part in (f"{file}:1", *parts):
        assert part in str(caught.value)


def test_a_file_has_one_split_and_known_scorers(tmp_path):
    file = write(tmp_path / "d.jsonl", {"prompt": "x", "answer": 1})
    with pytest.raises(ConfigError, match="no split 'test'"):
        list(FileBenchmark(FileBenchmark.Options(file=file)).tasks("test"))
    with pytest.raises(ConfigError, match="no scorer 'exat'"):
        FileBenchmark(FileBenchmark.Options(file=file, scorer="exat"))


@pytest.mark.parametrize(
    "answer",
    [{"a": 1}, True, [["4"]], [True], ["4", None], float("nan"), float("inf"), None, [], "", " "],
)
def test_an_answer_that_nothing_can_equal_is_refused(tmp_path, answer):
    rows = {"prompt": "x", "gold": 10**400}, {"prompt": "x", "gold": answer}
    file = write(tmp_path / "d.jsonl", *rows)
    tasks = iter(FileBenchmark(FileBenchmark.Options(file=file, answer="gold")).tasks("all"))
    assert next(tasks).private == {"answer": 10**400}
    with pytest.raises(ConfigError, match=r"d.jsonl:2: column 'gold' holds no answer"):
        next(tasks)

"""Row benchmarks: a table whose rows become tasks, and outputs that are graded one by one.

A subclass says where rows come from, how one becomes a task, and how an output is graded:

    class GSM8K(RowBenchmark):
        source = HubRows("openai/gsm8k", config="main", revision="…", licence="MIT")
        splits = {"train": "train", "test": "test"}

        def task(self, row): …
        def grade(self, task, output): …

With the option `file` a local JSONL takes the place of the source; all else stays the same.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from attrs import evolve, field, frozen

from rllm_core.benchmark import Benchmark, ScoreContext
from rllm_core.benchmark.files import Located, Row, read_jsonl, unknown_column
from rllm_core.benchmark.sources import GeneratedRows, HubRows, Source
from rllm_core.errors import ConfigError
from rllm_core.types import Episode, Score, Task

__all__ = ["GeneratedRows", "HubRows", "RowBenchmark", "row_id"]


class RowBenchmark(Benchmark):
    """Base of benchmarks whose tasks are the rows of a table."""

    source: Source
    answer_format: ClassVar[str] = ""
    """Put after each prompt: how the answer is to be written."""

    @frozen
    class Options:
        """Options of every benchmark of rows."""

        file: str | None = field(
            default=None,
            metadata={"doc": "a local JSONL with the same columns, read instead of the source"},
        )

    def task(self, row: Row) -> Task:
        """A row as a task, its id left empty; ValueError says what is wrong with the row."""
        raise NotImplementedError

    def grade(self, task: Task, output: str) -> Any:
        """Grade an output: a number, a bool, a Score or a Missing. Must be fast and pure."""
        raise NotImplementedError

    def rows(self, split: str) -> Iterator[Located]:
        """The rows behind a split, each with its place."""
        if getattr(self.options, "file", None):
            return read_jsonl(self.options.file)
        return self.source.rows(self.splits[split])

    def tasks(self, split: str) -> Iterable[Task]:
        """The tasks of a split, in the source's order.

        Raises ConfigError, with the row's place, for a row that cannot become a task.
        """
        if split not in self.splits:
            raise ConfigError(
                f"there is no split {split!r}", remedy=f"the splits are {', '.join(self.splits)}"
            )
        for index, located in enumerate(self.rows(split)):
            task = self._task_of(located)
            if self.answer_format:
                task = _with_format(task, self.answer_format)
            yield task if task.id else evolve(task, id=row_id(split, index, located.row))

    async def score(self, task: Task, episode: Episode, ctx: ScoreContext) -> Score:  # noqa: ARG002
        """Grade the episode's output."""
        return Score.of(self.grade(task, episode.output))

    def _task_of(self, located: Located) -> Task:
        try:
            return self.task(located.row)
        except KeyError as error:
            column = str(error.args[0]) if error.args else "?"
            raise unknown_column(located.place, column, located.row) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"{located.place}: {type(error).__name__}: {error}") from error


_CANONICAL = json.JSONEncoder(sort_keys=True, default=str)


def row_id(split: str, index: int, row: Row) -> str:
    """An id that names the place and changes with the content: "test-7-3f2a9c"."""
    content = _CANONICAL.encode(dict(row)).encode()
    return f"{split}-{index}-{hashlib.sha256(content).hexdigest()[:6]}"


def _with_format(task: Task, sentence: str) -> Task:
    """The task with a sentence after its prompt (after the last message, if it has several)."""
    if isinstance(task.prompt, str):
        return evolve(task, prompt=f"{task.prompt}\n\n{sentence}")
    *earlier, last = task.prompt
    return evolve(task, prompt=(*earlier, _appended(last, sentence)))


def _appended(message: Mapping[str, Any], sentence: str) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": f"{content}\n\n{sentence}"}
    return {**message, "content": [*(content or ()), {"type": "text", "text": sentence}]}

"""A plain JSONL file as a benchmark: `rllm eval ./data.jsonl`, without a line of code."""

import json
import math
from collections.abc import Iterable
from typing import Any

from attrs import evolve, field, frozen

from rllm_core.benchmark import Benchmark, ScoreContext
from rllm_core.benchmark.files import Located, read_jsonl, unknown_column
from rllm_core.benchmark.rows import row_id
from rllm_core.errors import ConfigError
from rllm_core.scoring import load_scorer
from rllm_core.types import Episode, Score, Task

__all__ = ["FileBenchmark"]


class FileBenchmark(Benchmark):
    """The rows of a JSONL file: one column is the prompt, one the answer.

    A prompt is a text or a list of chat messages. The answer is a text, a number, or a list of
    those of which any counts, and never empty; it reaches the scorer only. Other columns become
    the task's metadata, which the agent may see.
    """

    category = "file"
    splits = {"all": "all"}
    default_splits = {"train": "all", "eval": "all"}
    max_tokens = 512

    @frozen
    class Options:
        """Options of a benchmark that is a file."""

        file: str = field(metadata={"doc": "the JSONL file"})
        prompt: str = field(default="prompt", metadata={"doc": "column of the prompt"})
        answer: str = field(
            default="answer",
            metadata={"doc": "column of the answer; empty: there is none, a scorer knows better"},
        )
        id: str = field(
            default="", metadata={"doc": "column of the id; empty: made of place and content"}
        )
        scorer: str = field(
            default="exact",
            metadata={"doc": "exact, contains, number, or module:function"},
        )

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.scorer = load_scorer(self.options.scorer)

    def tasks(self, split: str) -> Iterable[Task]:
        """The file's rows as tasks; ConfigError for a row that lacks a column or cannot be used."""
        if split not in self.splits:
            raise ConfigError(
                f"a file has no split {split!r}", remedy="leave benchmark.split out, or say 'all'"
            )
        for index, located in enumerate(read_jsonl(self.options.file)):
            yield self._task(index, located)

    async def score(self, task: Task, episode: Episode, ctx: ScoreContext) -> Score:
        """Score by the chosen scorer."""
        return await self.scorer.score(task, episode, ctx)

    def _task(self, index: int, located: Located) -> Task:
        options, row = self.options, dict(located.row)
        values = {
            name: self._column(located, name)
            for name in ("prompt", "answer", "id")
            if getattr(options, name)
        }
        for name in values:
            row.pop(getattr(options, name), None)
        private = {}
        if "answer" in values:
            private["answer"] = _answer(values["answer"], options.answer, located)
        task = Task.of(_prompt(values["prompt"], located), private=private, metadata=row)
        name = str(values["id"]) if "id" in values else row_id("all", index, located.row)
        return evolve(task, id=name)

    def _column(self, located: Located, name: str) -> Any:
        column = getattr(self.options, name)
        if column in located.row:
            return located.row[column]
        raise unknown_column(
            located.place, column, located.row, remedy=f"name the column: benchmark.{name}=COLUMN"
        )


def _prompt(value: Any, located: Located) -> Any:
    if isinstance(value, str):
        return value
    if (
        isinstance(value, list)
        and value
        and all(isinstance(m, dict) and "role" in m for m in value)
    ):
        return value
    raise ConfigError(
        f"{located.place}: the prompt is a {type(value).__name__}, {value!r:.60}",
        remedy='a prompt is a text or a list of messages {"role": …, "content": …}',
    )


def _answer(value: Any, column: str, located: Located) -> Any:
    answers = value if isinstance(value, list) else [value]
    if answers and all(_comparable(each) for each in answers):
        return value
    raise ConfigError(
        f"{located.place}: column {column!r} holds no answer that an output can be compared "
        f"with: {json.dumps(value):.60}",
        remedy="an answer is a text that is not blank, a finite number, or a list of those",
    )


def _comparable(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    # Whole numbers of any size will do, and math.isfinite fails on large ones.
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))

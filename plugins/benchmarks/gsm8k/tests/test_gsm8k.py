"""GSM8K on real rows: golds with separators and signs, both extractions, and what is refused."""

from pathlib import Path

import pytest
from rllm_benchmark_gsm8k import GSM8K, rllm_benchmark

from rllm_core.errors import ConfigError
from rllm_core.testing import BenchmarkConformance
from rllm_core.types import Task

DATA = Path(__file__).resolve().parents[5] / "shared" / "data" / "benchmarks" / "gsm8k"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared sample rows are not here")


class WithHashes(BenchmarkConformance):
    benchmark = GSM8K

    def gold(self, task):
        return f"Some working with 12 steps.\n#### {task.private['answer']}"


@needs_data
class TestRealRows(WithHashes):
    options = {"file": str(DATA / "test.jsonl")}


@needs_data
class TestGoldsWithSeparatorsAndSigns(WithHashes):
    options = {"file": str(DATA / "edge_numeric.jsonl")}

    async def test_golds_may_be_written_plainly(self):
        for task in self.tasks():
            plain = task.private["answer"].replace(",", "")
            assert (await self.score(task, f"#### {plain}.00")).value == 1.0
            assert (await self.score(task, f"#### {plain}1")).value == 0.0

    async def test_worked_solutions_score_full_marks(self):
        from rllm_core.benchmark.files import read_jsonl

        rows = [located.row for located in read_jsonl(self.options["file"])]
        tasks = self.make().tasks("test")
        for task, row in zip(tasks, rows, strict=True):
            assert (await self.score(task, row["answer"])).value == 1.0


TASK = Task.of("?", id="t", private={"answer": "18"})


@pytest.mark.parametrize(
    ("output", "strict", "flexible"),
    [
        ("#### 18", 1, 1),
        ("The answer is $18.00.", 0, 1),
        ("18 eggs, I mean 20", 0, 0),
        ("#### 20\nor 18", 0, 0),
        ("no idea", 0, 0),
    ],
)
def test_both_extractions(output, strict, flexible):
    for extract in ("strict", "flexible"):
        score = GSM8K(GSM8K.Options(extract=extract)).grade(TASK, output)
        assert score.parts == {"strict": strict, "flexible": flexible}
        assert score.value == score.parts[extract]


def test_the_prompt_says_how_to_answer(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"question": "1 + 1?", "answer": "1 + 1 = 2\\n#### 2"}')
    (task,) = GSM8K(GSM8K.Options(file=str(file))).tasks("train")
    assert task.text == "1 + 1?\n\nPut the final number after '#### '."
    assert task.private == {"answer": "2"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"question": "?", "answer": "2"}', "no number after a last '####'"),
        ('{"question": "?", "answer": 2}', ":1: "),
        ('{"problem": "?", "answer": "#### 2"}', "no column 'question'"),
    ],
)
def test_rows_that_are_not_gsm8k_are_refused(tmp_path, row, message):
    file = tmp_path / "rows.jsonl"
    file.write_text(row)
    with pytest.raises(ConfigError, match=message):
        list(GSM8K(GSM8K.Options(file=str(file))).tasks("test"))


def test_the_source_is_pinned():
    assert rllm_benchmark() is GSM8K
    assert len(GSM8K.source.revision) == 40
    with pytest.raises(ValueError, match="must be in"):
        GSM8K.Options(extract="loose")

"""GSM8K: grade-school word problems (Cobbe et al. 2021, arXiv:2110.14168).

A row is {question, answer}; the gold number follows the last '#### ' of the answer. Golds carry
thousands separators and signs; equality is numeric, as in the reference evaluation (lm-eval's
`gsm8k`, whose two extractions are both reported).
"""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen, validators

from rllm_core import hookimpl
from rllm_core.benchmark import HubRows, RowBenchmark, Score, Task
from rllm_core.scoring import numbers

__all__ = ["GSM8K"]

EXTRACTIONS = ("strict", "flexible")


class GSM8K(RowBenchmark):
    """8,792 word problems: 7,473 to train on, 1,319 to test."""

    category = "math"
    source = HubRows(
        "openai/gsm8k",
        config="main",
        revision="740312add88f781978c0658806c59bc2815b9866",
        licence="MIT",
    )
    max_tokens = 1024
    splits = {"train": "train", "test": "test"}
    answer_format = "Put the final number after '#### '."

    @frozen
    class Options(RowBenchmark.Options):
        """Options of gsm8k."""

        extract: str = field(
            default="strict",
            validator=validators.in_(EXTRACTIONS),
            metadata={
                "doc": "strict: the number after '####' counts; flexible: else the last number"
            },
        )

    def task(self, row: Mapping[str, Any]) -> Task:
        """The question; its gold is the number at the end of the worked answer."""
        return Task.of(row["question"], private={"answer": numbers.after_hashes(row["answer"])})

    def grade(self, task: Task, output: str) -> Score:
        """Numeric equality; both extractions are among the parts."""
        gold = task.private["answer"]
        parts = {
            "strict": float(numbers.equal(numbers.strict(output), gold)),
            "flexible": float(numbers.equal(numbers.final(output), gold)),
        }
        return Score(parts[self.options.extract], parts=parts)


@hookimpl
def rllm_benchmark() -> type[GSM8K]:
    """The class behind `rllm eval gsm8k`."""
    return GSM8K

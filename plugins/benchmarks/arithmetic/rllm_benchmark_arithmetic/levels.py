"""The levels of arithmetic: which numbers are asked about, in which words, and the answer.

A model of 135M parameters answers bare instructions in prose and gets no reward to learn from;
three solved examples as earlier turns give it the form. Models with a vocabulary of sixteen
characters get the bare characters.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import permutations, product
from typing import Any

from attrs import frozen

from rllm_core.types import Message, Tool

__all__ = ["LEVELS", "Level", "add"]

Numbers = tuple[int, ...]

IN_FORM = {"role": "system", "content": "Answer exactly in the form of the examples."}


def add(a: int, b: int) -> int:
    """The sum: what runs when the model calls the tool of the level `tool`."""
    return a + b


ADD = Tool(
    name="add",
    description="Add two whole numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    function="rllm_benchmark_arithmetic.levels:add",
)


@frozen
class Level:
    """One kind of question.

    `numbers` are all that can be asked about, `shown` those of the solved examples, which are
    never asked. `holdout` says whether test questions stay out of training unless the user
    decides: a level of a hundred questions has too few to spare.
    """

    name: str
    numbers: tuple[Numbers, ...]
    ask: Callable[[Numbers], str]
    answer: Callable[[Numbers], int]
    shown: tuple[Numbers, ...] = ()
    holdout: bool = False
    tools: tuple[Tool, ...] = ()

    @property
    def asked(self) -> tuple[Numbers, ...]:
        """Everything that can be asked: all but the examples."""
        return tuple(n for n in self.numbers if n not in self.shown)

    def messages(self, numbers: Numbers) -> tuple[Message, ...]:
        """The conversation that ends with the question about these numbers."""
        return (*self._opening, _user(self.ask(numbers)))

    @cached_property
    def _opening(self) -> tuple[Message, ...]:
        """The solved examples, as earlier turns."""
        turns: list[Message] = [IN_FORM] if self.shown else []
        for example in self.shown:
            turns += [_user(self.ask(example)), *self._solved(example)]
        return tuple(turns)

    def _solved(self, numbers: Numbers) -> list[Message]:
        reply: Message = {"role": "assistant", "content": str(self.answer(numbers))}
        return [*_tool_turns(numbers, self.answer(numbers)), reply] if self.tools else [reply]


def _user(text: str) -> Mapping[str, Any]:
    return {"role": "user", "content": text}


def _tool_turns(numbers: Numbers, result: int) -> list[Message]:
    """The call of the tool, and its result."""
    a, b = numbers
    key = f"call_{a}_{b}"
    function = {"name": "add", "arguments": f'{{"a": {a}, "b": {b}}}'}
    call = {"id": key, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": key, "content": str(result)},
    ]


DIGITS = tuple(product(range(10), repeat=2))
TWO_DIGITS = tuple(product(range(10, 100), repeat=2))


def _sum_question(numbers: Numbers) -> str:
    return f"What is {numbers[0]} + {numbers[1]}? Reply with only the number."


def _larger_question(numbers: Numbers) -> str:
    return f"Which number is larger, {numbers[0]} or {numbers[1]}? Reply with only the number."


_ALL = (
    Level("add1", DIGITS, _sum_question, sum, shown=((6, 6), (3, 9), (2, 3))),
    Level(
        "add2", TWO_DIGITS, _sum_question, sum, shown=((61, 58), (35, 86), (32, 39)), holdout=True
    ),
    Level(
        "sort2",
        tuple(permutations(range(10, 100), 2)),
        _larger_question,
        max,
        shown=((61, 58), (35, 86), (32, 39)),
        holdout=True,
    ),
    Level(
        "tool",
        DIGITS,
        lambda n: f"What is {n[0]} + {n[1]}?",
        sum,
        shown=((6, 6), (3, 9), (2, 3)),
        tools=(ADD,),
    ),
    Level("copy1", tuple((d,) for d in range(10)), lambda n: f"{n[0]}=", lambda n: n[0]),
    Level("succ", tuple((d,) for d in range(10)), lambda n: f"{n[0]}=", lambda n: (n[0] + 1) % 10),
)

LEVELS = {level.name: level for level in _ALL}

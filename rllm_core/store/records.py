"""Rows ↔ values: how episodes, steps and batch rows lie in the database.

Token ids and logprobs are blobs, little-endian, four bytes a token; everything else of a
value is its JSON (`rllm_core.serialize`). What comes back equals what was put.
"""

import json
import sqlite3
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from rllm_core.serialize import from_json, to_json
from rllm_core.statistics import Attempt
from rllm_core.types import Episode, Failed, Logprobs, Missing, Step, Stop, Trajectory, is_value

__all__ = [
    "BatchRow",
    "Event",
    "dump",
    "insert_episode",
    "read_attempt",
    "read_episode",
]

ARRAYS = {"context_ids": "i", "output_ids": "i", "logprobs": "f"}


def _floats(values: Iterable[float]) -> Logprobs:
    return values if isinstance(values, array) and values.typecode == "f" else array("f", values)


@frozen
class BatchRow:
    """What one optimizer step trained on; enough, with the episodes, to do it again.

    `sequences` names each sequence as episode/trajectory/branch, `credits` (float32) is the
    advantage of each, `groups` which of them were compared with each other, `version` the
    weights that the step started from. `loss` and `optim` are JSON documents.
    """

    step: int
    version: int
    sequences: tuple[str, ...]
    credits: Logprobs = field(converter=_floats)
    groups: tuple[int, ...] = ()
    loss: Mapping[str, Any] = field(factory=dict)
    optim: Mapping[str, Any] = field(factory=dict)

    def row(self) -> tuple[Any, ...]:
        """The row, in the order of the table's columns."""
        return (
            self.step,
            self.version,
            dump(self.sequences),
            dump(self.groups),
            _blob(self.credits),
            dump(self.loss),
            dump(self.optim),
        )

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> "BatchRow":
        """The inverse of `row`."""
        step, version, sequences, groups, credits_, loss, optim = row
        return cls(
            step,
            version,
            tuple(json.loads(sequences)),
            _array("f", credits_),
            tuple(json.loads(groups)),
            json.loads(loss),
            json.loads(optim),
        )


@frozen
class Event:
    """Something that happened to the run: a retry, a skipped batch, an interruption."""

    time: float
    kind: str
    message: str
    data: Mapping[str, Any]


def dump(value: Any) -> str:
    """JSON in ASCII (so that lone surrogates survive); what is no JSON is kept as its text.

    Plugins put numpy scalars, paths and the like into metadata: that must not cost the run
    an episode.
    """
    return json.dumps(value, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy scalars and arrays, tensors
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    return str(value)


def _blob(values: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def _array(typecode: str, blob: bytes) -> "array[Any]":
    values = array(typecode)
    values.frombytes(blob)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _column(text: str) -> str:
    """Text for a column that queries look at; UTF-8 has no place for lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


def insert_episode(
    connection: sqlite3.Connection, phase: str, group: int, attempt: int, episode: Episode
) -> None:
    """Put an episode in the place (phase, group, attempt), instead of what was there."""
    place = (_column(phase), group, attempt)
    connection.execute(
        'DELETE FROM episodes WHERE phase = ? AND "group" = ? AND attempt = ?', place
    )
    facts = Attempt.of(episode)
    key = connection.execute(
        "INSERT INTO episodes VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            _column(episode.id),
            *place,
            *_facts_row(facts),
            dump(to_json(evolve(episode, trajectories=()))),
        ),
    ).lastrowid
    for position, trajectory in enumerate(episode.trajectories):
        connection.execute(
            "INSERT INTO trajectories VALUES (?, ?, ?, ?)",
            (
                key,
                position,
                _column(trajectory.name),
                dump(to_json(evolve(trajectory, steps=()))),
            ),
        )
        connection.executemany(
            "INSERT INTO steps VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
            ((key, position, i, *_step_row(step)) for i, step in enumerate(trajectory.steps)),
        )


def _step_row(step: Step) -> tuple[Any, ...]:
    bare = evolve(step, context_ids=array("i"), output_ids=array("i"), logprobs=array("f"))
    body = to_json(bare)
    for name in ARRAYS:
        del body[name]
    return (dump(body), _blob(step.context_ids), _blob(step.output_ids), _blob(step.logprobs))


def _facts_row(facts: Attempt) -> tuple[Any, ...]:
    ungraded = None
    if isinstance(facts.graded, (Missing, Failed)):
        ungraded = dump(to_json(facts.graded))
    return (
        _column(facts.task),
        facts.graded if is_value(facts.graded) else None,
        ungraded,
        facts.stop.value,
        None if facts.error is None else _column(facts.error),
        _column(facts.message),
        facts.calls,
        facts.prompt_tokens,
        facts.completion_tokens,
        facts.seconds,
        facts.truncated,
        facts.untrainable,
    )


FACTS = (
    "task, value, ungraded, stop, error, message, calls, prompt_tokens, completion_tokens, "
    "seconds, truncated, untrainable"
)


def read_attempt(row: Sequence[Any]) -> Attempt:
    """The facts of an episode from its columns `FACTS`, without reading its calls."""
    facts = dict(zip(FACTS.split(", "), row, strict=True))
    ungraded = facts.pop("ungraded")
    graded = facts.pop("value")
    if graded is None:
        ((kind, reason),) = json.loads(ungraded).items()
        graded = Missing(reason) if kind == "missing" else Failed(reason)
    facts["stop"] = Stop(facts["stop"])
    facts["truncated"] = bool(facts["truncated"])
    return Attempt(graded=graded, **facts)


def read_episode(connection: sqlite3.Connection, key: int, body: str) -> Episode:
    """The episode of this key, whole."""
    steps: dict[int, list[Step]] = {}
    for trajectory, *row in connection.execute(
        "SELECT trajectory, body, context_ids, output_ids, logprobs FROM steps"
        " WHERE episode = ? ORDER BY trajectory, position",
        (key,),
    ):
        steps.setdefault(trajectory, []).append(_read_step(row))
    trajectories = tuple(
        evolve(from_json(Trajectory, json.loads(text)), steps=tuple(steps.get(position, ())))
        for position, text in connection.execute(
            "SELECT position, body FROM trajectories WHERE episode = ? ORDER BY position", (key,)
        )
    )
    return evolve(from_json(Episode, json.loads(body)), trajectories=trajectories)


def _read_step(row: Sequence[Any]) -> Step:
    body, *blobs = row
    arrays = {
        name: _array(typecode, blob)
        for (name, typecode), blob in zip(ARRAYS.items(), blobs, strict=True)
    }
    return from_json(Step, {**json.loads(body), **arrays})

"""Cassettes: what a run asked its models and what came back, recorded; and played back offline.

A cassette is a JSONL file in the run's directory. A line is one answered request: whose it was,
a hash of everything that was asked (prompt ids or messages, sampling, seed), and the answer or the
error that ended it. Played back, a request gets the answer that was recorded for the same session
and the same question; several of the same get theirs in the order of the recording. A request that
was never recorded is a `ModelError`: the run has become another one.

A `Recorder` and a `Player` are both a `Tape`, which is what the gateway passes its calls through.
"""

import json
from array import array
from collections import deque
from collections.abc import AsyncIterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from attrs import asdict, define, field, frozen

from rllm_core import errors
from rllm_core.errors import ConfigError, ModelError, RllmError, StoreError
from rllm_core.types import Logprobs
from rllm_core.upstream import Sampled, SamplingParams, TokenPrompt, Upstream

__all__ = ["CASSETTE", "Asked", "Player", "Recorder", "Tape", "fault_of", "raise_fault"]

CASSETTE = "cassette.jsonl"


@frozen
class Asked:
    """One question: its kind (sample, score, chat), who asked in which role, and what."""

    kind: str
    session: str
    role: str
    what: Mapping[str, Any]

    def key(self) -> str:
        """A hash of all of it."""
        text = json.dumps([self.kind, self.session, self.role, self.what], sort_keys=True)
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Tape(Protocol):
    """What is recorded on, or played from."""

    def recorded(self, asked: Asked) -> dict[str, Any] | None:
        """The recorded answer; None where the question is to be put to the model itself.

        ModelError where it should have been recorded and was not.
        """
        ...

    def record(self, asked: Asked, answer: Mapping[str, Any]) -> None:
        """Keep an answer."""
        ...

    def wrap(self, role: str, upstream: Upstream) -> Upstream:
        """A token upstream whose calls go over the tape."""
        ...


class Recorder:
    """Records into a file, after what it holds already (a run that goes on)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("a", encoding="ascii")

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()

    def recorded(self, asked: Asked) -> None:
        """Nothing: every question goes to the model."""

    def record(self, asked: Asked, answer: Mapping[str, Any]) -> None:
        """Append one line; StoreError where the disk takes no more."""
        line = {"key": asked.key(), "kind": asked.kind, "session": asked.session, **answer}
        try:
            self._file.write(json.dumps({**line, "role": asked.role}) + "\n")
            self._file.flush()
        except OSError as error:
            raise StoreError(
                f"the cassette {self._path} cannot be written: {error.strerror}",
                remedy="free some space, or run without run.record",
            ) from error

    def wrap(self, role: str, upstream: Upstream) -> Upstream:
        """The upstream, recorded."""
        return _Taped(role, upstream, self)


class Player:
    """Plays a file back. Only where each line begins is kept in memory."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ConfigError(
                f"there is no recording in {path.parent}",
                remedy="record a run first: run.record=true",
            )
        self._path = path
        self._file = path.open("rb")
        self._at: dict[str, deque[int]] = {}
        place = 0
        for line in self._file:
            if line.endswith(b"\n"):  # a killed run may leave half a line
                self._at.setdefault(json.loads(line)["key"], deque()).append(place)
            place += len(line)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()

    def recorded(self, asked: Asked) -> dict[str, Any]:
        """The next answer to this question; the last one for ever."""
        places = self._at.get(asked.key())
        if not places:
            raise ModelError(
                f"the recording {self._path} has no answer to this call of {asked.session}",
                remedy="it differs from what was recorded: another prompt, sampling or seed",
            )
        self._file.seek(places.popleft() if len(places) > 1 else places[0])
        found: dict[str, Any] = json.loads(self._file.readline())
        return found

    def record(self, asked: Asked, answer: Mapping[str, Any]) -> None:
        """Nothing: it is recorded already."""

    def wrap(self, role: str, upstream: Upstream) -> Upstream:
        """An upstream that answers from the recording, at the version of this one."""
        return _Taped(role, upstream, self)


def fault_of(error: RllmError) -> dict[str, Any]:
    """An error as a recorded answer."""
    return {"error": {"type": type(error).__name__, "message": error.message}}


def raise_fault(found: Mapping[str, Any]) -> None:
    """Raise the error that was recorded, if the answer is one."""
    if (told := found.get("error")) is not None:
        raise getattr(errors, told["type"], ModelError)(told["message"])


@define(eq=False)
class _Taped:
    """A token upstream whose calls go over a tape."""

    role: str
    upstream: Upstream = field(repr=False)
    tape: Tape = field(repr=False)

    @property
    def version(self) -> int:
        return self.upstream.version

    @property
    def context_window(self) -> int:
        return self.upstream.context_window

    async def sample(self, prompt: TokenPrompt, params: SamplingParams) -> AsyncIterator[Sampled]:
        what = {"prompt": _hash(prompt), **asdict(params)}
        asked = Asked("sample", prompt.session, self.role, what)
        found = self.tape.recorded(asked)
        if found is not None:
            for piece in found["pieces"]:
                yield _piece(piece)
            raise_fault(found)
            return
        pieces: list[dict[str, Any]] = []
        told = {"params": asdict(params), "prompt_tokens": len(prompt.ids), "pieces": pieces}
        try:
            async for sampled in self.upstream.sample(prompt, params):
                plain = asdict(sampled)
                pieces.append(
                    {**plain, "ids": list(sampled.ids), "logprobs": list(sampled.logprobs)}
                )
                yield sampled
        except RllmError as error:
            self.tape.record(asked, {**told, **fault_of(error)})
            raise
        self.tape.record(asked, told)

    async def score(self, prompt: TokenPrompt) -> Logprobs:
        asked = Asked("score", prompt.session, self.role, {"prompt": _hash(prompt)})
        found = self.tape.recorded(asked)
        if found is not None:
            raise_fault(found)
            return array("f", found["logprobs"])
        try:
            logprobs = await self.upstream.score(prompt)
        except RllmError as error:
            self.tape.record(asked, fault_of(error))
            raise
        self.tape.record(asked, {"logprobs": list(logprobs)})
        return logprobs


def _hash(prompt: TokenPrompt) -> str:
    return blake2b(prompt.ids.tobytes(), digest_size=16).hexdigest()


def _piece(told: Mapping[str, Any]) -> Sampled:
    ids, logprobs = array("i", told["ids"]), array("f", told["logprobs"])
    return Sampled(ids, logprobs, told["version"], told["finish"], told["doubt"])

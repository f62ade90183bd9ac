"""The audit: whether every token that was trained on is what it claims to be.

A batch row says which trajectories an optimizer step trained on. For each, the sequences are
rebuilt from the stored token tree, and each target is followed back to the call that sampled it:

- its id is the sampled one, and what stands before it is what was sent upstream for that call;
- the call was the trained agent's own, is not marked untrainable, and has one finite logprob ≤ 0
  a token, which is the one that the step used;
- version spans cover the sample without gaps and lie within `max_staleness` of the row's version;
- the token is a target in one sequence of one step only;
- the counts agree: with the usage that the call recorded, and with the step's `train_tokens`.

Nothing here needs the model. Whether the logprobs are the weights' own is `rescore`'s question.
"""

import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import Factory, asdict, define, field, frozen

from rllm_core.store import BatchRow, RunReader
from rllm_core.training.groups import PHASE
from rllm_core.training.sequences import Sequence, branches, sequences
from rllm_core.types import Episode, Step

__all__ = ["Audit", "Offence", "audit", "credits_of"]

KEPT = 20
"""Offences that are kept in full; the others are counted."""


@frozen
class Offence:
    """One token that is not what it claims to be: EPISODE/STEP/INDEX, where, and why."""

    token: str
    where: str
    what: str


@frozen
class Audit:
    """What was found.

    `tokens` were trained on, in `sequences` of `steps` optimizer steps; `context` tokens went
    along without gradient. `staleness` is the largest distance between the version that sampled
    a token and the one that trained it. `untrainable` counts the calls that were left out, by
    reason. `wrong` counts offences, of which `offences` are the first.
    """

    steps: int = 0
    sequences: int = 0
    tokens: int = 0
    context: int = 0
    staleness: int = 0
    untrainable: Mapping[str, int] = Factory(dict)
    wrong: int = 0
    offences: tuple[Offence, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The audit as JSON data."""
        return asdict(self)


def audit(reader: RunReader) -> Audit:
    """Check every batch row of a run, one optimizer step at a time."""
    config = tomllib.loads(reader.info.config_toml)
    auditor = _Auditor(reader, int(config.get("run", {}).get("max_staleness", 0)))
    recorded = dict(reader.metrics(PHASE))
    for row in reader.batches():
        auditor.row(row, recorded.get(row.step, {}).get("train_tokens"))
    return auditor.result()


def credits_of(row: BatchRow) -> dict[tuple[str, str], float]:
    """(episode, trajectory) → the advantage with which the row trained it."""
    names = (name.rsplit("/", 1) for name in row.sequences)
    return {(e, t): a for (e, t), a in zip(names, row.credits, strict=True)}


@define
class _Auditor:
    """The state of an audit: what was trained so far, and what is wrong."""

    reader: RunReader
    max_staleness: int
    counts: Counter[str] = field(factory=Counter)
    untrainable: Counter[str] = field(factory=Counter)
    staleness: int = 0
    offences: list[Offence] = field(factory=list)
    trained: dict[tuple[str, str], str] = field(factory=dict)

    def result(self) -> Audit:
        numbers = {name: self.counts[name] for name in ("steps", "sequences", "tokens", "context")}
        return Audit(
            **numbers,
            staleness=self.staleness,
            untrainable=dict(self.untrainable),
            wrong=self.counts["wrong"],
            offences=tuple(self.offences),
        )

    def blame(self, token: str, where: str, what: str) -> None:
        self.counts["wrong"] += 1
        if len(self.offences) < KEPT:
            self.offences.append(Offence(token, where, what))

    def row(self, row: BatchRow, recorded: float | None) -> None:
        """One optimizer step; `recorded` is the number of targets that it said it had."""
        self.counts["steps"] += 1
        where = f"optimizer step {row.step}"
        before = self.counts["tokens"]
        members = {e.id: e for group in row.groups for e in self.reader.episodes(PHASE, group)}
        credit = credits_of(row)
        if len(credit) < len(row.sequences):
            self.blame("", where, "the row names a trajectory twice")
        for (name, trajectory), advantage in credit.items():
            if not math.isfinite(advantage):
                self.blame(f"{name}/{trajectory}", where, f"its advantage is {advantage}")
            if not _has(members.get(name), trajectory):
                self.blame(f"{name}/{trajectory}", where, "it is not in the row's groups")
        for episode in members.values():
            self._episode(row, episode, credit)
        if recorded is not None and (got := self.counts["tokens"] - before) != recorded:
            told = f"the row makes {got:,} targets, the step recorded {recorded:,.0f}"
            self.blame("", where, told)

    def _episode(
        self, row: BatchRow, episode: Episode, credit: Mapping[tuple[str, str], float]
    ) -> None:
        self.untrainable.update(s.untrainable for s in episode.steps if s.untrainable)
        by_id = {step.id: step for step in episode.steps}
        paths = {
            (trajectory.name, number): path
            for trajectory in episode.trajectories
            for number, path in enumerate(branches(trajectory, by_id))
        }
        for sequence in sequences(episode):
            if credit.get((episode.id, sequence.trajectory), 0.0) != 0.0:
                path = paths[sequence.trajectory, sequence.branch]
                self._sequence(row, sequence, path)

    def _sequence(self, row: BatchRow, sequence: Sequence, path: list[Step]) -> None:
        where = f"optimizer step {row.step}, sequence {sequence.name}"
        self.counts["sequences"] += 1
        at = 0
        for step in path:
            start = at + len(step.context_ids)
            end = start + len(step.output_ids)
            faults = [*_context(sequence, step, at, start)]
            if any(sequence.target[start:end]):
                self.counts["tokens"] += end - start
                faults += self._sampled(row, sequence, step, start)
                faults += self._first_time(sequence.episode, step, where)
            for index, what in faults:
                self.blame(f"{sequence.episode}/{step.id}/{index}", where, what)
            if len(step.logprobs) != len(step.output_ids) and any(sequence.target[start:end]):
                return  # whatever follows is shifted against its ids
            at = end
        if at != len(sequence.ids):
            told = f"the sequence has {len(sequence.ids)} ids, its calls have {at}"
            self.blame(sequence.name, where, told)
        self.counts["context"] += at - sequence.targets

    def _first_time(self, episode: str, step: Step, where: str) -> "Iterator[Fault]":
        earlier = self.trained.setdefault((episode, step.id), where)
        if earlier is not where:
            yield 0, f"it was trained before, by {earlier}"

    def _sampled(
        self, row: BatchRow, sequence: Sequence, step: Step, start: int
    ) -> "Iterator[Fault]":
        """What is wrong with a call whose sample is trained on."""
        if step.untrainable is not None:
            yield 0, f"its call is marked untrainable: {step.untrainable}"
        if step.agent != sequence.trajectory:
            yield 0, f"it was sampled for the agent {step.agent!r}"
        yield from _tokens(sequence, step, start)
        yield from _usage(step, start)
        yield from self._versions(row, step)

    def _versions(self, row: BatchRow, step: Step) -> "Iterator[Fault]":
        at = 0
        for span in step.versions:
            if span.start != at or span.end <= span.start:
                yield at, f"no version is known for it (the next span begins at {span.start})"
            lag = row.version - span.version
            self.staleness = max(self.staleness, lag)
            if lag < 0:
                told = f"weights {span.version} sampled it, which came after those that trained it"
                yield span.start, f"{told} ({row.version})"
            elif lag > self.max_staleness:
                told = f"weights {span.version} sampled it, {lag} steps before it trained"
                yield span.start, f"{told} (max_staleness is {self.max_staleness})"
            at = span.end
        if at != len(step.output_ids):
            yield at, f"versions are known for {at} of {len(step.output_ids)} sampled tokens"


Fault = tuple[int, str]
"""The index of a token in its call's sample, and what is wrong with it."""


def _has(episode: Episode | None, trajectory: str) -> bool:
    return episode is not None and any(t.name == trajectory for t in episode.trajectories)


def _context(sequence: Sequence, step: Step, at: int, start: int) -> Iterator[Fault]:
    if sequence.ids[at:start] != step.context_ids:
        yield 0, "the ids before it are not those that were sent upstream"
    if any(sequence.target[at:start]):
        yield 0, "tokens of its prompt are trained on"


def _tokens(sequence: Sequence, step: Step, start: int) -> Iterator[Fault]:
    """Ids, mask and logprobs, token by token."""
    if len(step.logprobs) != len(step.output_ids):
        yield 0, f"{len(step.output_ids)} sampled tokens have {len(step.logprobs)} logprobs"
        return
    for index, (token, logprob) in enumerate(zip(step.output_ids, step.logprobs, strict=True)):
        at = start + index
        if sequence.ids[at] != token:
            yield index, f"id {sequence.ids[at]} is trained where {token} was sampled"
        if not sequence.target[at]:
            yield index, "it is left out while the rest of its sample is trained on"
        if not math.isfinite(logprob) or logprob > 0:
            yield index, f"its logprob is {logprob}"
        elif sequence.logprobs[at] != logprob:
            yield index, f"logprob {sequence.logprobs[at]} is used, {logprob} was recorded"


def _usage(step: Step, prompt: int) -> Iterator[Fault]:
    """The counts that the call recorded when it was made, against the ids that are stored."""
    used = step.usage
    if used.completion_tokens and used.completion_tokens != len(step.output_ids):
        told = f"{used.completion_tokens} tokens were sampled, {len(step.output_ids)} are stored"
        yield 0, told
    if used.prompt_tokens and used.prompt_tokens != prompt:
        yield 0, f"its prompt had {used.prompt_tokens} tokens, {prompt} are stored"

"""One token's story: what it says, who sampled it, and what was done with it.

A token is named EPISODE/STEP/INDEX: a call's id (or its number in the episode, from 0), and the
token's place in that call's sample, from 0.
"""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from rllm_core.errors import ConfigError
from rllm_core.store import RunReader
from rllm_core.training.audit import credits_of
from rllm_core.training.sequences import branches, sequences
from rllm_core.types import Episode, Step, TokenIds

__all__ = ["Story", "Training", "decoder", "story"]


@frozen
class Training:
    """One use of the token: position `position` of `sequence`, as a target or as context."""

    step: int
    sequence: str
    position: int
    target: bool
    advantage: float


@frozen
class Story:
    """All that is known of one token. `text` is None where no tokenizer is at hand."""

    token: str
    id: int
    text: str | None
    agent: str
    model: str
    version: int | None
    logprob: float | None
    temperature: float
    untrainable: str | None
    trained: tuple[Training, ...]

    def to_json(self) -> dict[str, Any]:
        """The story as JSON data."""
        return asdict(self)


def story(reader: RunReader, name: str, decode: Callable[[TokenIds], str] | None) -> Story:
    """The story of the token `EPISODE/STEP/INDEX`; ConfigError where there is no such token."""
    episode, step, index = _find(reader, name)
    spans = [span.version for span in step.versions if span.start <= index < span.end]
    return Story(
        token=f"{episode.id}/{step.id}/{index}",
        id=step.output_ids[index],
        text=None if decode is None else decode(step.output_ids[index : index + 1]),
        agent=step.agent,
        model=step.model,
        version=spans[0] if spans else None,
        logprob=step.logprobs[index] if index < len(step.logprobs) else None,
        temperature=step.temperature,
        untrainable=step.untrainable,
        trained=tuple(_uses(reader, episode, step, index)),
    )


def decoder(reader: RunReader) -> Callable[[TokenIds], str] | None:
    """What turns the run's ids into text, from what lies on this disk; None where nothing does."""
    from rllm_core.gateway import load_renderer

    policy = tomllib.loads(reader.info.config_toml).get("models", {}).get("policy", {})
    name = str(policy.get("name", ""))
    if name == "tiny":
        return load_renderer(name).decode
    for folder in (reader.directory / "export", Path(name).expanduser()):
        try:
            return load_renderer(name, directory=folder).decode
        except ConfigError:
            continue
    return None


def _find(reader: RunReader, name: str) -> tuple[Episode, Step, int]:
    parts = name.rsplit("/", 2)
    if len(parts) != 3 or not parts[2].isdigit():
        raise ConfigError(
            f"{name!r} names no token",
            remedy="write EPISODE/STEP/INDEX: a call's id or number, and a place in its sample",
        )
    episode, index = reader.episode(parts[0]), int(parts[2])
    calls = list(episode.steps)
    numbered = {str(number): step for number, step in enumerate(calls)}
    step = next((s for s in calls if s.id == parts[1]), numbered.get(parts[1]))
    if step is None:
        known = ", ".join(s.id for s in calls[:8]) or "none"
        raise ConfigError(f"{episode.id} has no call {parts[1]!r}", remedy=f"it has: {known}")
    if index >= len(step.output_ids):
        raise ConfigError(f"the call {step.id} sampled {len(step.output_ids)} tokens, from 0 on")
    return episode, step, index


def _uses(reader: RunReader, episode: Episode, step: Step, index: int) -> list[Training]:
    """Every optimizer step that had the token in a sequence with credit."""
    places = list(_places(episode, step, index))
    return [
        Training(row.step, sequence, position, target, credit[episode.id, trajectory])
        for row in reader.batches()
        if (credit := credits_of(row))
        for sequence, trajectory, position, target in places
        if credit.get((episode.id, trajectory), 0.0) != 0.0
    ]


def _places(episode: Episode, step: Step, index: int) -> list[tuple[str, str, int, bool]]:
    """(sequence, trajectory, position, whether it is a target) wherever the token occurs."""
    by_id = {each.id: each for each in episode.steps}
    found = []
    for sequence in sequences(episode):
        paths = list(branches(episode.trajectory(sequence.trajectory), by_id))
        at = 0
        for each in paths[sequence.branch]:
            at += len(each.context_ids)
            if each.id == step.id:
                target = bool(sequence.target[at + index])
                found.append((sequence.name, sequence.trajectory, at + index, target))
            at += len(each.output_ids)
    return found

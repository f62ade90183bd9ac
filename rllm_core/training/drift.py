"""Drift: where a history was rendered anew instead of being extended, and what that changed.

A call that carries on an earlier conversation, and yet begins a branch of its own, had its
history re-rendered: by a template that rewrites it, or by a server. The tokens that the model
saw then differ from those it had sampled. Shown as a diff of decoded texts.
"""

import difflib
from collections.abc import Callable, Iterator
from typing import Any

from attrs import asdict, frozen

from rllm_core.gateway.canonical import canonical
from rllm_core.types import Episode, Step, TokenIds

__all__ = ["Drift", "drifts"]

Decode = Callable[[TokenIds], str]
SHOWN = 40
"""Lines of one diff."""


@frozen
class Drift:
    """The call `step` repeats the conversation up to `after`, in other tokens from `at` on."""

    episode: str
    step: str
    after: str
    at: int
    sampled: int
    diff: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The drift as JSON data."""
        return asdict(self)


def drifts(episode: Episode, decode: Decode | None) -> Iterator[Drift]:
    """Where histories of an episode drifted. Without `decode` the diffs are empty.

    A re-rendered history whose tokens came out the same has not drifted.
    """
    by_id = {step.id: step for step in episode.steps}
    told: list[tuple[Step, list[str], TokenIds]] = []
    for step in episode.steps:
        forms, ids = _conversation(step, by_id), _ids(step, by_id)
        if step.parent is None and len(step.output_ids):
            found = _continued(step, told)
            if found is not None and (drift := _drift(episode.id, step, *found, decode)):
                yield drift
        told.append((step, forms, ids))


def _continued(
    step: Step, told: list[tuple[Step, list[str], TokenIds]]
) -> tuple[Step, TokenIds] | None:
    """The call whose conversation the messages of `step` begin with, the longest there is."""
    forms = [canonical(message, {}) for message in step.messages]
    fitting = [
        (len(said), earlier, ids)
        for earlier, said, ids in told
        if earlier.agent == step.agent and len(ids) and forms[: len(said)] == said
    ]
    if not fitting:
        return None
    _, earlier, ids = max(fitting, key=lambda each: each[0])
    return earlier, ids


def _drift(
    episode: str, step: Step, earlier: Step, ids: TokenIds, decode: Decode | None
) -> Drift | None:
    again = step.context_ids[: len(ids)]
    if again == ids:
        return None
    at = next((i for i, (a, b) in enumerate(zip(ids, again, strict=False)) if a != b), len(again))
    before, after = ids[at:], step.context_ids[at:]
    lines: list[str] = []
    if decode is not None:
        old, new = decode(before).splitlines(), decode(after).splitlines()
        diff = difflib.unified_diff(old, new, "sampled", "re-rendered", lineterm="", n=1)
        lines = list(diff)[:SHOWN]
    return Drift(episode, step.id, earlier.id, at, len(earlier.output_ids), tuple(lines))


def _path(step: Step, by_id: dict[str, Step]) -> list[Step]:
    path = [step]
    while (parent := path[-1].parent) is not None:
        path.append(by_id[parent])
    return path[::-1]


def _conversation(step: Step, by_id: dict[str, Step]) -> list[str]:
    """The canonical forms of a call's messages and its reply, from the root on."""
    return [
        canonical(message, {})
        for each in _path(step, by_id)
        for message in (*each.messages, each.reply)
    ]


def _ids(step: Step, by_id: dict[str, Step]) -> TokenIds:
    path = _path(step, by_id)
    ids = path[0].context_ids + path[0].output_ids
    for each in path[1:]:
        ids = ids + each.context_ids + each.output_ids
    return ids

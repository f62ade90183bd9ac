"""`rllm runs audit`: the verdict on a run's trained tokens, and the story of one of them."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rllm_core.cli.typography import Typography, counted, tally
from rllm_core.errors import RllmError

if TYPE_CHECKING:
    from rllm_core.store import RunReader
    from rllm_core.training.audit import Audit
    from rllm_core.training.drift import Drift
    from rllm_core.training.rescore import Rescored
    from rllm_core.training.story import Story

__all__ = ["audited", "token_story"]

DRIFTS = 5
"""Drifts that are shown; the others are counted."""

Shown = tuple[Any, Iterator[str]]
"""Data for --json, and lines for people."""


def audited(reader: "RunReader", sample: int, text: Typography) -> tuple[int, Shown]:
    """The exit code (1 where a token is not in order) and what to show of the audit."""
    from rllm_core.training.audit import audit
    from rllm_core.training.story import decoder

    found = audit(reader)
    scored, why = _rescored(reader, sample if found.tokens else 0)
    drifted = _drifts(reader, decoder(reader))
    data = {
        **found.to_json(),
        "rescored": [each.to_json() for each in scored],
        "not_rescored": why or None,
        "drifts": [each.to_json() for each in drifted],
    }
    lines = itertools.chain(
        _verdict(found, text), _scores(scored, why, text), _drift_lines(drifted, text)
    )
    return (1 if found.wrong else 0), (data, lines)


def _rescored(reader: "RunReader", sample: int) -> "tuple[list[Rescored], str]":
    """What re-scoring found, and why there is none where the model cannot be loaded here."""
    if not sample:
        return [], ""
    from rllm_core.training.rescore import rescore

    try:
        return asyncio.run(rescore(reader, sample)), ""
    except RllmError as error:
        return [], error.message


def _drifts(reader: "RunReader", decode: Any) -> "list[Drift]":
    from rllm_core.training.drift import drifts

    return [drift for episode in reader.episodes() for drift in drifts(episode, decode)]


def _verdict(found: "Audit", text: Typography) -> Iterator[str]:
    if not found.steps:
        yield "this run has trained on nothing: it has no batch rows"
        return
    yield text.join(
        [
            counted(found.steps, "optimizer step"),
            counted(found.sequences, "sequence"),
            f"{found.tokens:,} trained tokens after {found.context:,} of context",
            f"weights at most {counted(found.staleness, 'step')} behind",
        ]
    )
    if found.untrainable:
        reasons = {text.clean(reason): n for reason, n in found.untrainable.items()}
        yield f"left out as untrainable: {tally(reasons)}"
    if not found.wrong:
        yield "every trained token is in order"
        return
    yield f"{counted(found.wrong, 'offence')}:"
    for offence in found.offences:
        place = text.join(filter(None, [text.clean(offence.token), text.clean(offence.where)]))
        yield f"  {place}: {text.clean(offence.what)}"
    if found.wrong > len(found.offences):
        yield f"  and {found.wrong - len(found.offences):,} more"


def _scores(scored: "list[Rescored]", why: str, text: Typography) -> Iterator[str]:
    if why:
        yield f"not scored again: {text.clean(why)}"
    for each in scored:
        yield (
            f"weights {each.version}, {counted(each.sequences, 'sequence')} scored again"
            f" ({each.tokens:,} tokens): |change of logprob| mean {each.mean:.2g},"
            f" largest {each.largest:.2g}"
        )


def _drift_lines(drifted: "list[Drift]", text: Typography) -> Iterator[str]:
    if drifted:
        n = len(drifted)
        yield f"{n:,} {'history was' if n == 1 else 'histories were'} re-rendered in other tokens"
    for drift in drifted[:DRIFTS]:
        yield (
            f"  {text.clean(drift.episode)}: {text.clean(drift.step)} repeats"
            f" {text.clean(drift.after)}, other tokens from {drift.at:,} on"
        )
        yield from (f"    {text.escaped(line)}" for line in drift.diff)


def token_story(reader: "RunReader", name: str, text: Typography) -> Shown:
    """What to show of one token."""
    from rllm_core.training.story import decoder, story

    told = story(reader, name, decoder(reader))
    return told.to_json(), _story(told, text)


def _story(told: "Story", text: Typography) -> Iterator[str]:
    shown = "its text is unknown here" if told.text is None else repr(told.text)
    yield text.join([f"token {text.clean(told.token)}", f"id {told.id}", text.escaped(shown)])
    version = "unknown weights" if told.version is None else f"weights {told.version}"
    logprob = "no logprob" if told.logprob is None else f"logprob {told.logprob:.6g}"
    model = text.clean(told.model or "the model")
    yield text.join(
        [
            f"sampled for {text.clean(told.agent)} by {model}",
            version,
            logprob,
            f"temperature {told.temperature:g}",
        ]
    )
    if told.untrainable:
        yield f"it cannot be trained on: {text.clean(told.untrainable)}"
    for use in told.trained:
        role = "trained" if use.target else "context"
        yield (
            f"{role} in optimizer step {use.step}: position {use.position:,} of"
            f" {text.clean(use.sequence)}, advantage {use.advantage:+.6g}"
        )
    if not told.trained:
        yield "no optimizer step trained on its trajectory"

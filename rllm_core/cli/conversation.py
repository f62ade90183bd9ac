"""One episode for human eyes: who said what, how it ended, and which tokens it was made of."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rllm_core.cli.typography import Typography, duration, number
from rllm_core.types import Episode, Failed, Graded, Missing, Step

__all__ = ["conversation"]


def conversation(episode: Episode, text: Typography) -> Iterator[str]:
    """The lines of `rllm runs show RUN --episode ID`.

    A call is shown under the branch it continues: only the messages that it added, then the
    reply, then its tokens.
    """
    yield text.join([f"episode {text.clean(episode.id)}", f"task {text.clean(episode.task_id)}"])
    ended = f"ended: {episode.stop.value.replace('_', ' ')}"
    yield text.join([f"reward {grade(episode.reward, text)}", ended, duration(episode.seconds)])
    if episode.score is not None:
        for name, part in episode.score.parts.items():
            yield f"  {text.clean(name)}: {grade(part, text)}"
    if episode.error is not None:
        yield f"error ({episode.error.category}): {text.escaped(episode.error.message)}"
    for trajectory in episode.trajectories:
        named = f"trajectory {text.clean(trajectory.name)}"
        reward = trajectory.reward
        yield ""
        yield named if reward is None else text.join([named, f"reward {grade(reward, text)}"])
        for step in trajectory.steps:
            yield from _call(step, text)
    if episode.output:
        yield ""
        yield f"output: {text.escaped(episode.output)}"


def grade(graded: Graded, text: Typography) -> str:
    """A grade in words."""
    if isinstance(graded, Missing):
        return f"not graded: {text.clean(graded.reason)}"
    if isinstance(graded, Failed):
        return f"not graded, the scorer failed: {text.clean(graded.error)}"
    return number(graded)


def _call(step: Step, text: Typography) -> Iterator[str]:
    after = f"after {text.clean(step.parent)}" if step.parent else "a new branch"
    yield ""
    yield text.join([f"call {text.clean(step.id)}", after, text.clean(step.model)])
    for message in (*step.messages, step.reply):
        yield from _message(message, text)
    yield f"  [{_tokens(step, text)}]"


def _message(message: Mapping[str, Any], text: Typography) -> Iterator[str]:
    role = text.clean(str(message.get("role", "?")))
    shown = [_plain(message[key]) for key in ("reasoning_content", "content") if message.get(key)]
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        shown.append(f"calls {function.get('name')}({function.get('arguments', '')})")
    lines = text.escaped("\n".join(shown)).splitlines() or [""]
    yield f"  {role}: {lines[0]}"
    yield from (f"    {line}" for line in lines[1:])


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else [content]
    texts = [p.get("text") if isinstance(p, Mapping) else None for p in parts]
    shown = zip(parts, texts, strict=True)
    return "\n".join(t if t is not None else json.dumps(p, default=str)[:200] for p, t in shown)


def _tokens(step: Step, text: Typography) -> str:
    """`60 context + 20 sampled tokens · mean logprob -0.41 · version 3 · stop`."""
    usage, logprobs = step.usage, step.logprobs
    if step.output_ids or step.context_ids:
        count = f"{len(step.context_ids):,} context + {len(step.output_ids):,} sampled tokens"
    else:
        count = f"{usage.prompt_tokens:,} prompt + {usage.completion_tokens:,} completion tokens"
    versions = sorted({span.version for span in step.versions})
    parts = [
        count,
        f"mean logprob {sum(logprobs) / len(logprobs):.2f}" if logprobs else "",
        f"weights {', '.join(map(str, versions))}" if versions else "",
        f"finish: {text.clean(step.finish)}",
        f"cannot be trained on: {text.clean(step.untrainable)}" if step.untrainable else "",
        duration(step.seconds) if step.seconds >= 1 else "",
    ]
    return text.join(parts)

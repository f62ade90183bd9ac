"""What a step says of itself, under the field's names."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rllm_core.training.update import Update
from rllm_core.types import Episode, Stop, is_value

__all__ = ["step_metrics"]


def step_metrics(
    episodes: Sequence[Episode], update: Update, measured: Mapping[str, float]
) -> dict[str, float]:
    """Reward, signal, tokens, staleness and errors of one step, with what was measured."""
    rewards = [float(e.reward) for e in episodes if is_value(e.reward)]  # type: ignore[arg-type]
    sampled = sum(len(step.output_ids) for e in episodes for step in e.steps)
    return {
        **_reward(episodes),
        "informative": update.informative,
        "episodes": len(episodes),
        "errors": sum(e.error is not None for e in episodes),
        "ungraded": len(episodes) - len(rewards),
        "truncated": sum(_truncated(e) for e in episodes),
        "tokens": sampled,
        "train_tokens": update.batch.targets,
        "staleness": _staleness(update),
        **measured,
    }


def _reward(episodes: Sequence[Episode]) -> dict[str, float]:
    """Mean over episodes; its standard error from the means of the tasks."""
    by_task: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        if is_value(episode.reward):
            by_task[episode.task_id].append(float(episode.reward))  # type: ignore[arg-type]
    if not by_task:
        return {}
    means = [sum(values) / len(values) for values in by_task.values()]
    mean = sum(means) / len(means)
    if len(means) == 1:
        return {"reward": mean}
    variance = sum((m - mean) ** 2 for m in means) / (len(means) - 1)
    return {"reward": mean, "reward_se": math.sqrt(variance / len(means))}


def _truncated(episode: Episode) -> bool:
    cut = any(step.finish == "length" for step in episode.steps)
    return cut or episode.stop in (Stop.CONTEXT_OVERFLOW, Stop.MAX_TOKENS)


def _staleness(update: Update) -> float:
    versions = update.batch.version_S2[:, 0]
    return float((update.row.version - versions).mean()) if len(versions) else 0.0

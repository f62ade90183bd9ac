"""What the gateway recorded, and what the harness said of it, as one Episode."""

from collections.abc import Iterable

from rllm_core.harness import Note, Outcome
from rllm_core.types import Step, Trajectory

__all__ = ["output_of", "trajectories"]


def trajectories(steps: Iterable[Step], notes: Iterable[Note]) -> tuple[Trajectory, ...]:
    """One trajectory an agent, in order of its first call, with what the harness noted."""
    by_agent: dict[str, list[Step]] = {}
    for step in steps:
        by_agent.setdefault(step.agent, []).append(step)
    noted = {note.name: note for note in notes}
    names = dict.fromkeys([*by_agent, *noted])
    return tuple(
        _trajectory(name, by_agent.get(name, []), noted.get(name, Note(name))) for name in names
    )


def _trajectory(name: str, steps: list[Step], note: Note) -> Trajectory:
    return Trajectory(name, tuple(steps), note.reward, note.metadata)


def output_of(outcome: Outcome, steps: tuple[Step, ...]) -> str:
    """The harness's output, else the last assistant text that the gateway saw."""
    if outcome.output is not None:
        return outcome.output
    return steps[-1].output if steps else ""

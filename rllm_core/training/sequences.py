"""From the token tree to what can be trained on: one sequence a branch.

A branch is a path of calls from the root of the session's tree to a call that its agent did
not continue. Its tokens are the calls' context and completions, one after the other, exactly
as they went upstream. **A sampled token is a target in one sequence only, the first branch
that holds it**; in every other it is context. A call that cannot be vouched for
(`Step.untrainable`), or that another agent made, is context everywhere.
"""

from array import array
from collections.abc import Iterator, Mapping

from attrs import field, frozen

from rllm_core.types import Episode, Logprobs, Step, TokenIds, Trajectory

__all__ = ["Sequence", "branches", "sequences"]


@frozen
class Sequence:
    """One branch: ids, which of them are targets, and at which logprob they were sampled.

    `target` and `logprobs` are as long as `ids` (0 / 0.0 off target). `versions` are the
    lowest and highest weight version among the targets.
    """

    episode: str
    trajectory: str
    branch: int
    ids: TokenIds = field(repr=False)
    target: "bytearray" = field(repr=False)
    logprobs: Logprobs = field(repr=False)
    temperature: float
    versions: tuple[int, int]

    @property
    def name(self) -> str:
        """Where the sequence is from, as batch rows name it."""
        return f"{self.episode}/{self.trajectory}/{self.branch}"

    @property
    def targets(self) -> int:
        """How many tokens are trained on."""
        return sum(self.target)


def sequences(episode: Episode) -> list[Sequence]:
    """The sequences of an episode that have targets, trajectory by trajectory."""
    by_id = {step.id: step for step in episode.steps}
    claimed: set[str] = set()
    found = []
    for trajectory in episode.trajectories:
        for branch, path in enumerate(branches(trajectory, by_id)):
            own = [s for s in path if _trainable(s, trajectory.name) and s.id not in claimed]
            if own:
                claimed.update(step.id for step in own)
                targets = frozenset(step.id for step in own)
                found.append(_sequence(episode.id, trajectory.name, branch, path, targets))
    return found


def branches(trajectory: Trajectory, by_id: Mapping[str, Step]) -> Iterator[list[Step]]:
    """The trajectory's branches in order, each as its calls from the root on.

    `by_id` holds the episode's calls: a branch may begin with those of another trajectory.
    """
    return (_path(leaf, by_id) for leaf in _leaves(trajectory))


def _trainable(step: Step, agent: str) -> bool:
    return step.untrainable is None and step.agent == agent and len(step.output_ids) > 0


def _leaves(trajectory: Trajectory) -> Iterator[Step]:
    continued = {step.parent for step in trajectory.steps}
    return (step for step in trajectory.steps if step.id not in continued)


def _path(leaf: Step, by_id: Mapping[str, Step]) -> list[Step]:
    path = [leaf]
    while (parent := path[-1].parent) is not None:
        path.append(by_id[parent])
    return path[::-1]


def _sequence(
    episode: str, trajectory: str, branch: int, path: list[Step], targets: frozenset[str]
) -> Sequence:
    ids, target, logprobs = array("i"), bytearray(), array("f")
    for step in path:
        ids += step.context_ids + step.output_ids
        trained = step.id in targets
        quiet = len(step.context_ids) + (0 if trained else len(step.output_ids))
        target += bytes(quiet)
        logprobs.extend([0.0] * quiet)
        if trained:
            target += b"\x01" * len(step.output_ids)
            logprobs += step.logprobs
    versions = [span.version for step in path if step.id in targets for span in step.versions]
    temperatures = {step.temperature for step in path if step.id in targets}
    if len(temperatures) > 1:
        raise ValueError(f"{episode}: one branch was sampled at several temperatures")
    return Sequence(
        episode, trajectory, branch, ids, target, logprobs, temperatures.pop(),
        (min(versions, default=0), max(versions, default=0)),
    )  # fmt: skip

"""Branches of the token tree become sequences; a sampled token is a target exactly once."""

from array import array
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from rllm_core.training.sequences import sequences
from rllm_core.types import Episode, Step, Trajectory, VersionSpan


@st.composite
def trees(draw):
    """Random sessions: each call continues an earlier one or starts a branch of its own."""
    steps, token = [], 0
    for number in range(draw(st.integers(1, 8))):
        parent = draw(st.sampled_from([None, *(s.id for s in steps)]))
        context = list(range(token, token + draw(st.integers(1, 3))))
        token += len(context)
        output = list(range(token, token + draw(st.integers(0, 3))))
        token += len(output)
        version = draw(st.integers(0, 3))
        steps.append(
            Step(
                id=f"c{number}",
                parent=parent,
                agent=draw(st.sampled_from(["solver", "judge"])),
                context_ids=context,
                output_ids=output,
                logprobs=[-1.0 - t for t in output],
                versions=(VersionSpan(0, len(output), version),),
                untrainable=draw(st.sampled_from([None, None, None, "re-tokenised"])),
            )
        )
    names = dict.fromkeys(s.agent for s in steps)
    return Episode(
        "e",
        "t",
        trajectories=tuple(Trajectory(n, tuple(s for s in steps if s.agent == n)) for n in names),
    )


def _path_ids(step, by_id):
    ids = array("i")
    while step is not None:
        ids = step.context_ids + step.output_ids + ids
        step = by_id.get(step.parent)
    return ids


@given(trees())
@settings(max_examples=300)
def test_every_trainable_token_is_a_target_exactly_once(episode):
    trained = Counter(
        token for s in sequences(episode) for token, t in zip(s.ids, s.target, strict=True) if t
    )
    wanted = {t for step in episode.steps if not step.untrainable for t in step.output_ids}
    assert trained == Counter(wanted)


@given(trees())
def test_a_sequence_is_a_path_with_the_samplers_own_logprobs(episode):
    by_id = {step.id: step for step in episode.steps}
    paths = {_path_ids(step, by_id).tobytes() for step in episode.steps}
    for sequence in sequences(episode):
        assert sequence.ids.tobytes() in paths
        for token, target, logprob in zip(
            sequence.ids, sequence.target, sequence.logprobs, strict=True
        ):
            assert logprob == (-1.0 - token if target else 0.0)


def test_targets_carry_the_range_of_versions_that_sampled_them():
    first = Step("a", output_ids=[1, 2], logprobs=[-1, -1], context_ids=[0],
                 versions=(VersionSpan(0, 1, 3), VersionSpan(1, 2, 4)))  # fmt: skip
    (sequence,) = sequences(Episode("e", "t", trajectories=(Trajectory("policy", (first,)),)))
    assert sequence.versions == (3, 4)
    assert sequence.name == "e/policy/0"

"""Aggregation as per-token weights, and what is left out of a batch."""

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm_core.algorithms import Credit
from rllm_core.algorithms.losses import AGGREGATIONS
from rllm_core.errors import ConfigError
from rllm_core.training.batches import build_batch
from rllm_core.training.sequences import Sequence


def _sequence(episode, context, sampled):
    return Sequence(
        episode, "policy", 0, array("i", range(context + sampled)),
        bytearray(context) + b"\x01" * sampled,
        array("f", [0.0] * context + [-0.5] * sampled), 1.0, (2, 3),
    )  # fmt: skip


shapes = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 5), st.sampled_from([-1.0, 0.0, 2.0])), max_size=6
)


@given(shapes, st.sampled_from(AGGREGATIONS))
def test_weights_do_not_depend_on_which_sequences_carry_a_gradient(shape, mode):
    made = [_sequence(f"e{i}", c, n) for i, (c, n, _) in enumerate(shape)]
    credit = {
        (s.episode, "policy"): Credit(s.episode, "policy", a)
        for s, (_, _, a) in zip(made, shape, strict=True)
    }
    batch = build_batch(made, credit, {s.episode: 0 for s in made}, mode)
    counts = [n for _, n, _ in shape]
    weight = {
        "token-mean": [1 / max(sum(counts), 1)] * len(counts),
        "sequence-mean": [1 / (len(counts) * n) for n in counts],
        "token-sum": [1.0] * len(counts),
    }[mode]
    kept = [i for i, (_, _, a) in enumerate(shape) if a]
    assert len(batch) == len(kept)
    for i, span in zip(kept, batch.spans(), strict=True):
        context, sampled, advantage = shape[i]
        on = [False] * context + [True] * sampled
        assert batch.target_T[span].tolist() == on
        np.testing.assert_allclose(batch.weight_T[span], np.array(on) * weight[i], rtol=1e-6)
        np.testing.assert_allclose(batch.advantage_T[span], np.array(on) * advantage)
        assert batch.ids_T[span].tolist() == list(range(context + sampled))


def test_an_ungraded_member_is_left_out_of_the_denominator():
    made = [_sequence("a", 1, 2), _sequence("b", 1, 2)]
    batch = build_batch(
        made, {("a", "policy"): Credit("a", "policy", 1.0)}, {"a": 0, "b": 0}, "token-mean"
    )
    assert batch.weight_T.tolist() == [0.0, 0.5, 0.5]


def test_an_unknown_aggregation_is_refused_by_name():
    with pytest.raises(ConfigError, match="token-median"):
        build_batch(
            [_sequence("a", 1, 1)],
            {("a", "policy"): Credit("a", "policy", 1.0)},
            {"a": 0},
            "token-median",
        )

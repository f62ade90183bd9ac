"""Statistics against published and hand-computed numbers."""

import itertools
import json
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm_core.serialize import to_json
from rllm_core.statistics import Attempt, Estimate, clustered, mean, pass_at_k, summarize
from rllm_core.types import (
    Episode,
    ErrorRecord,
    Failed,
    Missing,
    Score,
    Step,
    Stop,
    Trajectory,
    Usage,
)


def test_pass_at_k_is_the_share_of_subsets_with_a_success():
    for n, c in [(5, 2), (6, 0), (6, 6), (7, 1)]:
        outcomes = [1] * c + [0] * (n - c)
        for k in range(1, n + 1):
            subsets = list(itertools.combinations(outcomes, k))
            expected = sum(any(s) for s in subsets) / len(subsets)
            assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_equals_the_product_form_of_the_humaneval_paper():
    """Chen et al. 2021, figure 3: 1 − Π_{i=n−c+1}^{n} (1 − k/i)."""
    for n, c, k in [(200, 20, 1), (200, 20, 10), (200, 20, 100), (200, 3, 100), (10, 9, 2)]:
        product = math.prod(1 - k / i for i in range(n - c + 1, n + 1)) if n - c >= k else 0.0
        assert pass_at_k(n, c, k) == pytest.approx(1 - product, rel=1e-12)
    assert pass_at_k(200, 20, 1) == pytest.approx(0.1)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 2, 5), (4, 5, 1), (4, -1, 1), (4, 1, 0)])
def test_pass_at_k_refuses_what_it_cannot_estimate(n, c, k):
    with pytest.raises(ValueError, match="cannot be estimated"):
        pass_at_k(n, c, k)


def test_a_clustered_error_computed_by_hand():
    """Three tasks, two attempts each: 11, 10, 00. The mean is 1/2.

    Cluster sums of deviations are 1, 0, −1; se² = 3/2 · (1 + 0 + 1) / 36 = 1/12.
    """
    estimate = clustered([[1, 1], [1, 0], [0, 0]])
    assert estimate == Estimate(0.5, pytest.approx(math.sqrt(1 / 12)), 6, 3)


def test_a_clustered_error_by_the_formula_of_miller_2024():
    """Equation 4: se² = se_CLT² + (1/n²) Σ_c Σ_i Σ_{j≠i} (s_ic − s̄)(s_jc − s̄).

    Both corrections tend to 1, so that with many clusters the two agree.
    """
    rng = random.Random(0)
    groups = [[float(rng.random() < p)] * 2 for p in [rng.random() for _ in range(4000)]]
    flat = [x for g in groups for x in g]
    n, average = len(flat), statistics.fmean(flat)
    clt = statistics.variance(flat) / n
    cross = sum((a - average) * (b - average) for g in groups for a, b in (g, g[::-1])) / n**2
    assert clustered(groups).se == pytest.approx(math.sqrt(clt + cross), rel=1e-3)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=50))
def test_one_attempt_a_task_gives_the_ordinary_standard_error(values):
    estimate = mean(values)
    assert estimate.mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert estimate.se == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)), abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.integers(1, 5))
def test_repeating_the_same_answer_adds_no_certainty(values, times):
    once, often = mean(values), clustered([x] * times for x in values)
    assert often.se == pytest.approx(once.se, abs=1e-9)


def test_no_values_no_estimate_and_one_cluster_no_error():
    assert mean([]) is None
    assert clustered([[], []]) is None
    assert clustered([[1, 0]]) == Estimate(0.5, None, 2, 1)
    assert clustered([[1, 0]]).interval() is None


def test_intervals():
    low, high = Estimate(0.5, 0.1, 10, 10).interval()
    assert (low, high) == (pytest.approx(0.304, abs=1e-3), pytest.approx(0.696, abs=1e-3))
    # Wilson 1927, as tabulated for 0 of 10 and 10 of 10 at 95 %
    assert mean([0.0] * 10).wilson() == (
        pytest.approx(0, abs=1e-12),
        pytest.approx(0.2775, abs=1e-4),
    )
    assert mean([1.0] * 10).wilson() == (pytest.approx(0.7225, abs=1e-4), 1.0)


def graded(task, value, **more):
    return Attempt(task, value, **more)


def test_errors_count_as_wrong_in_one_reading_and_not_at_all_in_the_other():
    """Eight samples, two right, four wrong, two errors: 25 % and 33 %."""
    attempts = [graded(f"t{i}", 1.0) for i in range(2)]
    attempts += [graded(f"t{i}", 0.0) for i in range(2, 6)]
    attempts += [
        graded(f"t{i}", Missing("died"), error="infra", stop=Stop.ERROR) for i in range(6, 8)
    ]
    summary = summarize(attempts)
    assert summary.accuracy.mean == pytest.approx(0.25)
    assert summary.accuracy_without_errors.mean == pytest.approx(1 / 3)
    assert summary.errors == {"infra": 2}
    assert (summary.episodes, summary.graded, summary.tasks) == (8, 6, 8)


def test_what_the_scorer_could_not_grade_is_wrong_in_neither_reading():
    attempts = [
        graded("a", 1.0),
        graded("b", Failed("sympy raised"), error="score"),
        graded("c", Missing("no judge")),
    ]
    summary = summarize(attempts)
    assert summary.accuracy == Estimate(1.0, None, 1, 1)
    assert summary.ungraded == {"scorer failed: sympy raised": 1, "no judge": 1}
    assert summary.errors == {"score": 1}


def test_nothing_graded_is_no_accuracy_rather_than_zero():
    summary = summarize([graded("a", Missing("no judge"))])
    assert summary.accuracy is None
    assert summarize([]).accuracy is None
    assert summarize([]).pass_at == {}


def test_pass_at_k_of_a_set():
    values = {"a": [1, 0, 0, 0], "b": [1, 1, 1, 1], "c": [0, 0, 0, 0]}
    summary = summarize(graded(t, float(x)) for t, xs in values.items() for x in xs)
    assert set(summary.pass_at) == {2, 4}
    assert summary.pass_at[2].mean == pytest.approx((0.5 + 1 + 0) / 3)
    assert summary.pass_at[4].mean == pytest.approx(2 / 3)


def test_episodes_are_summed_up():
    cut = Step("s", finish="length", usage=Usage(7, 3), untrainable="no ids")
    episodes = [
        Episode("a", "t", 0, (Trajectory(steps=(cut, cut)),), score=Score(1), seconds=2.0),
        Episode("b", "t", 1, stop=Stop.CONTEXT_OVERFLOW, score=Score(0), seconds=1.0),
        Episode("c", "u", error=ErrorRecord("timeout", "late"), stop=Stop.TIMEOUT),
    ]
    summary = summarize(episodes)
    assert (summary.truncated, summary.calls, summary.untrainable) == (2, 2, 2)
    assert (summary.prompt_tokens, summary.completion_tokens, summary.seconds) == (14, 6, 3.0)
    assert summary.stops == {"context_overflow": 1, "timeout": 1}
    assert summary == summarize(Attempt.of(e) for e in episodes)
    assert json.loads(json.dumps(summary.to_json()))["accuracy"]["n"] == 3
    assert to_json(summary)["episodes"] == 3


def test_the_interval_of_a_share_stays_within_zero_and_one():
    shares = [graded(f"t{i}", float(i < 2)) for i in range(8)]
    # Wilson's interval for 2 of 8, e.g. statsmodels.stats.proportion.proportion_confint
    assert summarize(shares).interval() == pytest.approx((0.0715, 0.5907), abs=1e-4)
    twice = summarize([*shares, *shares])
    low, high = twice.accuracy.interval()
    assert low < 0
    assert twice.interval() == (0.0, high)
    assert summarize([graded("a", -2.0), graded("b", -1.0)]).interval()[0] < -2
    assert summarize([]).interval() is None


@pytest.mark.parametrize(
    ("rewards", "mean_of", "bounds"),
    [
        ([0.0, 0.0], 0.0, (0.0, 0.2775)),
        ([1.0, 1.0], 1.0, (0.7225, 1.0)),
        ([1.0, 0.0], 0.5, (0.2366, 0.7634)),
        ([1.0, 0.0, 0.0], 1 / 3, None),
    ],
)
def test_equal_shares_of_every_task_are_as_wide_as_one_attempt_a_task(rewards, mean_of, bounds):
    summary = summarize([graded(f"t{i}", reward) for i in range(10) for reward in rewards])
    assert summary.accuracy.mean == pytest.approx(mean_of)
    low, high = summary.interval()
    assert high - low > 0.2
    if bounds:
        assert (low, high) == pytest.approx(bounds, abs=1e-4)

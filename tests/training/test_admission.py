"""The staleness rule, under thousands of random schedules."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rllm_core.training.admission import Admission


@given(st.integers(1, 4), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=300)
def test_no_group_is_trained_beyond_the_bound_and_none_is_lost(size, bound, random):
    rule, running, trained, sampled_at = Admission(size, 12, bound), set(), [], {}
    while rule.step < 12:
        for group in rule.admit():
            running.add(group)
            sampled_at[group] = rule.step
        due = rule.due()
        if due is None:
            group = random.choice(sorted(running))  # there is always one to wait for
            running.remove(group)
            rule.finish(group)
            continue
        assert len(due) == size
        assert due == sorted(due)
        assert all(rule.step - sampled_at[k] <= bound for k in due)
        trained += due
        rule.train(due)
    assert len(set(trained)) == len(trained) == 12 * size
    assert max(trained) < 12 * size
    assert not running
    assert rule.admit() == []


def test_staleness_zero_trains_the_groups_in_order():
    rule = Admission(2, 5)
    for step in range(5):
        assert rule.admit() == [2 * step, 2 * step + 1]
        assert rule.admit() == []
        rule.finish(2 * step + 1)
        assert rule.due() is None
        rule.finish(2 * step)
        rule.train(rule.due())


def test_groups_that_an_earlier_process_trained_are_not_admitted_again():
    rule = Admission(2, 9, max_staleness=1, step=1)
    rule.skip({0, 3})
    assert rule.admit() == [1, 2, 4, 5]

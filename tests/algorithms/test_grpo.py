"""GRPO against verl's numbers, and against what any group-relative algorithm must keep to."""

import json
import math
from pathlib import Path

import pytest

from rllm_core.algorithms import Member, TrajectoryGroup
from rllm_core.algorithms.grpo import GRPO, rllm_algorithm
from rllm_core.testing import AlgorithmConformance
from rllm_core.testing.algorithm import group_of

ORACLE = Path(__file__).resolve().parents[3] / "shared/data/oracles/verl_oracle_0.9.1.json"


@pytest.fixture(scope="module")
def oracle():
    if not ORACLE.is_file():
        pytest.skip("verl's reference numbers are not here")
    return json.loads(ORACLE.read_text())


class TestGRPO(AlgorithmConformance):
    algorithm = GRPO


class TestSampleDeviation(AlgorithmConformance):
    algorithm = GRPO
    options = {"ddof": 1}


class TestDrGRPO(AlgorithmConformance):
    algorithm = GRPO
    options = {"standardize": False, "aggregation": "token-sum"}


def credit(algorithm, *groups):
    return [c.advantage for c in algorithm.credit(groups)]


def test_a_published_example():
    """Rewards 1, 0, 0, 1: mean 0.5, deviation 0.5, so that advantages are ±1."""
    got = credit(GRPO(), group_of(1.0, 0.0, 0.0, 1.0))
    assert got == pytest.approx([1, -1, -1, 1], abs=1e-5)


def oracle_groups(oracle):
    """Groups of the oracle's batch, with the rows of its members."""
    rows = {}
    for row, group in enumerate(oracle["inputs"]["index"]):
        rows.setdefault(group, []).append(row)
    rewards = oracle["inputs"]["rewards"]
    for group, members in rows.items():
        made = (Member(str(row), "policy", rewards[row]) for row in members)
        yield members, TrajectoryGroup(str(group), "policy", tuple(made))


@pytest.mark.parametrize(
    ("name", "options"),
    [("grpo", {"ddof": 1}), ("grpo_nostd(Dr.GRPO)", {"standardize": False})],
)
def test_advantages_equal_verls(oracle, name, options):
    expected = [row[0] for row in oracle["advantages"][name]["adv"]]
    compared = 0
    for rows, group in oracle_groups(oracle):
        if len(rows) == 1:  # verl credits a lone member with its reward; ours has no credit
            continue
        got = credit(GRPO(GRPO.Options(**options)), group)
        assert got == pytest.approx([expected[row] for row in rows], abs=1e-6)
        compared += len(rows)
    assert compared == 7


def flat(oracle, key):
    torch = pytest.importorskip("torch")
    mask = torch.tensor(oracle["inputs"]["response_mask"]).bool()
    return torch.tensor(oracle["inputs"][key], dtype=torch.float64)[mask]


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_the_clipped_loss_and_its_gradient_equal_verls(oracle, aggregation):
    torch = pytest.importorskip("torch")
    mask = torch.tensor(oracle["inputs"]["response_mask"]).bool()
    advantage = torch.tensor(oracle["advantages"]["grpo"]["adv"], dtype=torch.float64)[mask]
    lp = flat(oracle, "log_prob").requires_grad_()
    lengths = mask.sum(1, keepdim=True).expand(mask.shape)[mask].double()
    weight = {
        "token-mean": torch.full_like(lengths, 1 / mask.sum()),
        "seq-mean-token-mean": 1 / (len(mask) * lengths),
        "seq-mean-token-sum": torch.full_like(lengths, 1 / len(mask)),
    }[aggregation]
    loss = GRPO(GRPO.Options(clip_low=0.2, clip_high=0.28)).loss.policy
    total = (weight * loss.terms(lp, flat(oracle, "old_log_prob"), advantage)).sum()
    total.backward()
    expected = oracle["losses"][f"vanilla|{aggregation}"]
    assert total.item() == pytest.approx(expected["loss"], abs=1e-6)
    gradient = torch.tensor(expected["grad"], dtype=torch.float64)[mask]
    assert torch.allclose(lp.grad, gradient, atol=1e-6)


def test_the_share_of_clipped_tokens_is_a_metric(oracle):
    torch = pytest.importorskip("torch")
    loss = GRPO(GRPO.Options(clip_low=0.2, clip_high=0.28)).loss.policy
    old = torch.zeros(4)
    lp = torch.log(torch.tensor([0.5, 0.9, 1.2, 1.5]))
    assert loss.metrics(lp, old)["clip_share"].tolist() == [1, 0, 0, 1]


def test_large_rewards_keep_their_precision():
    got = credit(GRPO(), group_of(1e9, 1e9 + 1))
    assert got == pytest.approx([-1, 1], abs=1e-4)
    assert all(math.isfinite(a) for a in got)


def test_the_hook_leads_here():
    assert rllm_algorithm() is GRPO

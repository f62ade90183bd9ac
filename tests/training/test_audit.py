"""The audit finds nothing in a sound run, and every way in which a stored token can be false."""

import json
import sqlite3
from array import array

import pytest
from attrs import evolve

from rllm_core.algorithms.grpo import GRPO
from rllm_core.backend import OptimParams
from rllm_core.cli.frame import run_command
from rllm_core.errors import ConfigError
from rllm_core.store import BatchRow, RunStore
from rllm_core.training.audit import audit
from rllm_core.training.drift import drifts
from rllm_core.training.story import story
from rllm_core.training.update import plan
from rllm_core.types import Episode, Score, Step, Trajectory, Usage, VersionSpan

CONFIG = '[run]\nkind = "train"\nmax_staleness = 1\n[models.policy]\nname = "tiny"\n'


def call(name, parent, context, output, version, **fields):
    """A call whose prompt is `before` tokens longer than what it adds."""
    before = fields.pop("before", 0)
    return Step(
        name, parent, context_ids=context, output_ids=output, logprobs=[-0.5] * len(output),
        versions=(VersionSpan(0, len(output), version),),
        usage=Usage(before + len(context), len(output)), **fields,
    )  # fmt: skip


def episode(group, attempt, version):
    """Two calls in a row, a second continuation of the first, and one that cannot train."""
    name = f"train-{group}-{attempt}"
    first = call(f"{name}-1", None, [1, 2, 3], [4, 5], version)
    second = call(f"{name}-2", first.id, [6], [7, 8, 9], version, before=5)
    other = call(f"{name}-3", first.id, [2], [3], version, before=5)
    side = call(f"{name}-4", None, [1], [2], version, untrainable="server re-tokenised")
    trajectory = Trajectory(steps=(first, second, other, side))
    return Episode(name, f"t{group}", attempt, (trajectory,), score=Score(float(attempt)))


async def trained(directory, change=lambda e: e, row=lambda r: r, versions=(0, 1)):
    """A run of two steps, one group of two episodes each, the first trained episode changed."""
    store = RunStore.create(
        directory, run_id="aud1", kind="train", name=None, config_toml=CONFIG, plugins={}
    )
    for step, version in enumerate(versions):
        members = [episode(step, attempt, version) for attempt in range(2)]
        update = plan(step, {step: members}, GRPO(), OptimParams(1.0))
        members[0] = change(members[0]) if step == 1 else members[0]
        for each in members:
            store.add_episode("train", step, each.attempt, each)
        await store.add_batch(step, row(update.row) if step == 1 else update.row)
        store.add_metrics(step, {"train_tokens": update.batch.targets})
    await store.flush()
    store.close()
    return RunStore.read(directory)


def first_call(**changes):
    """A change of the first call of an episode."""

    def change(one):
        (trajectory,) = one.trajectories
        step, *others = trajectory.steps
        return evolve(
            one, trajectories=(evolve(trajectory, steps=(evolve(step, **changes), *others)),)
        )

    return change


async def test_a_sound_run_is_in_order(tmp_path):
    reader = await trained(tmp_path / "run")
    found = audit(reader)
    reader.close()
    assert not found.wrong
    assert not found.offences
    # per episode: branch one trains 2 + 3, branch two only the 1 that is its own
    assert (found.steps, found.sequences, found.tokens) == (2, 8, 2 * 2 * 6)
    assert found.context == 2 * 2 * (4 + 6)
    assert found.untrainable == {"server re-tokenised": 4}


FALSE = {
    "a logprob is missing": (first_call(logprobs=[-0.5]), "2 sampled tokens have 1 logprobs"),
    "a logprob is no number": (first_call(logprobs=[-0.5, float("nan")]), "logprob is nan"),
    "a logprob is positive": (first_call(logprobs=[0.5, -0.5]), "its logprob is 0.5"),
    "no version": (first_call(versions=()), "versions are known for 0 of 2"),
    "a gap between versions": (
        first_call(versions=(VersionSpan(0, 1, 1), VersionSpan(2, 2, 1))), "no version is known",
    ),
    "from the future": (first_call(versions=(VersionSpan(0, 2, 2),)), "came after those"),
    "lost tokens": (first_call(output_ids=[4], logprobs=[-0.5]), "2 tokens were sampled, 1 are"),
    "a changed prompt": (first_call(context_ids=[1, 2]), "its prompt had 3 tokens, 2 are stored"),
    "a call that turns out untrainable": (first_call(untrainable="x"), "step recorded 12"),
    "another agent's call": (first_call(agent="judge"), "step recorded 12"),
}  # fmt: skip


@pytest.mark.parametrize("name", FALSE)
async def test_a_false_token_is_found_and_named(tmp_path, name):
    change, sentence = FALSE[name]
    reader = await trained(tmp_path / "run", change)
    found = audit(reader)
    reader.close()
    assert found.wrong
    told = next(o for o in found.offences if sentence in o.what)
    assert "optimizer step 1" in told.where
    assert not any("optimizer step 0" in each.where for each in found.offences)


async def test_too_stale_a_token_is_found(tmp_path):
    reader = await trained(tmp_path / "run", versions=(0, 0))
    assert audit(reader).staleness == 1
    assert not audit(reader).wrong
    reader.close()
    with sqlite3.connect(tmp_path / "run" / "run.db") as connection:
        connection.execute("UPDATE batches SET version = 2 WHERE step = 1")
    connection.close()
    reader = RunStore.read(tmp_path / "run")
    found = audit(reader)
    reader.close()
    assert "2 steps before it trained (max_staleness is 1)" in found.offences[0].what


async def test_a_token_trained_twice_is_found(tmp_path):
    def again(row):
        return BatchRow(
            row.step, row.version, (*row.sequences, "train-0-0/policy"), [*row.credits, 1.0], (0, 1)
        )

    reader = await trained(tmp_path / "run", row=again)
    found = audit(reader)
    reader.close()
    told = next(o for o in found.offences if "trained before" in o.what)
    assert told.token == "train-0-0/train-0-0-1/0"
    assert "optimizer step 0, sequence train-0-0/policy/0" in told.what


async def test_a_row_of_unknown_trajectories_is_found(tmp_path):
    def ghost(row):
        return evolve(row, sequences=("train-9-9/policy", *row.sequences[1:]))

    reader = await trained(tmp_path / "run", row=ghost)
    found = audit(reader)
    reader.close()
    assert found.offences[0].token == "train-9-9/policy"


async def test_the_story_of_a_token(tmp_path):
    reader = await trained(tmp_path / "run")
    told = story(reader, "train-1-1/0/1", lambda ids: f"<{ids[0]}>")
    assert (told.id, told.text, told.version, told.logprob) == (5, "<5>", 1, -0.5)
    # trained in the first branch, context in the second
    assert [(u.sequence[-1], u.target, u.position) for u in told.trained] == [
        ("0", True, 4),
        ("1", False, 4),
    ]
    assert {(u.step, round(u.advantage, 3)) for u in told.trained} == {(1, 1.0)}
    untold = story(reader, "train-1-1/train-1-1-4/0", None)
    assert (untold.trained, untold.untrainable) == ((), "server re-tokenised")
    for wrong in ("train-1-1", "train-1-1/0/9", "train-1-1/nine/0", "train-7-0/0/0"):
        with pytest.raises(ConfigError):
            story(reader, wrong, None)
    reader.close()


async def test_a_rendered_anew_history_is_shown_as_a_diff():
    ask, again = {"role": "user", "content": "hi"}, {"role": "user", "content": "more"}
    said = {"role": "assistant", "content": "\nyes\n"}
    first = Step(
        "a-1", messages=(ask,), reply=said, context_ids=list(b"hi\n"), output_ids=list(b"\nyes\n")
    )
    clean = {**said, "content": "yes"}
    second = Step(
        "a-2", messages=(ask, clean, again), reply=said,
        context_ids=list(b"hi\nyes\nmore\n"), output_ids=list(b"\nyes\n"),
    )  # fmt: skip
    same = Step(
        "a-3", messages=(ask, said, again), reply=said,
        context_ids=list(b"hi\n\nyes\nmore\n"), output_ids=list(b"!"),
    )  # fmt: skip
    (found,) = drifts(
        Episode("a", "t", trajectories=(Trajectory(steps=(first, second, same)),)),
        lambda ids: array("B", ids).tobytes().decode(),
    )
    assert (found.step, found.after, found.at) == ("a-2", "a-1", 3)
    assert "-" in found.diff  # the empty line that the model had sampled
    assert "+more" in found.diff


async def test_the_command_gives_a_verdict_and_an_exit_code(tmp_path, capsys):
    (await trained(tmp_path / "good")).close()
    (await trained(tmp_path / "bad", FALSE["from the future"][0])).close()
    assert run_command(["runs", "audit", str(tmp_path / "good"), "--sample", "0"]) == 0
    assert "every trained token is in order" in capsys.readouterr().out
    assert run_command(["runs", "audit", str(tmp_path / "bad"), "--sample", "0"]) == 1
    assert "train-1-0/train-1-0-1/0" in capsys.readouterr().out
    assert run_command(["runs", "audit", str(tmp_path / "bad"), "--sample", "0", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["wrong"] == 1
    told = ["runs", "audit", str(tmp_path / "good"), "--token", "train-1-0/0/0"]
    assert run_command(told) == 0
    assert "trained in optimizer step 1" in capsys.readouterr().out

"""Writes episodes, and a batch row per four, until killed; prints what has been committed.

Run as a program by test_hard_times.py: `python writes_forever.py DIRECTORY`.
"""

import asyncio
import sys
from pathlib import Path

from rllm_core.store import BatchRow, RunStore
from rllm_core.types import Episode, Score, Step, Trajectory


async def main(directory):
    store = RunStore.create(
        directory, run_id="7f3a", kind="train", name=None, config_toml="x = 1\n", plugins={}
    )
    for i in range(10**9):
        step = Step(f"s{i}", output_ids=range(i % 50), logprobs=[-0.5] * (i % 50))
        episode = Episode(f"e{i}", f"t{i}", 0, (Trajectory(steps=(step,)),), score=Score(i % 2))
        store.add_episode("train", i, 0, episode)
        if i % 4 == 3:
            names = tuple(f"e{j}/policy/0" for j in range(i - 3, i + 1))
            await store.add_batch(i // 4, BatchRow(i // 4, 0, names, [0.0] * 4))
            print(i // 4, flush=True)


asyncio.run(main(Path(sys.argv[1])))

"""Writes episodes and prints a rate and the memory in use, as JSON.

Run as a program by test_size.py: `python writes_many.py DIRECTORY EPISODES`.
"""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from rllm_core.store import RunStore
from rllm_core.types import Episode, Score, Step, Trajectory


def episode(i):
    step = Step(
        f"s{i}",
        messages=({"role": "user", "content": "What is 2 + 3? " * 5},),
        reply={"role": "assistant", "content": "5"},
        context_ids=range(60),
        output_ids=range(20),
        logprobs=[-0.5] * 20,
    )
    return Episode(f"e{i}", f"t{i // 4}", i % 4, (Trajectory(steps=(step,)),), "5", Score(1.0))


def megabytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def main(directory, count):
    store = RunStore.create(
        directory, run_id="7f3a", kind="eval", name=None, config_toml="", plugins={}
    )
    started, memory = time.monotonic(), []
    for i in range(count):
        store.add_episode("eval", i // 4, i % 4, episode(i))
        if i % 64 == 0:
            await asyncio.sleep(0)
        if i in (count // 5, count - 1):
            memory.append(megabytes())
    await store.flush()
    rate = count / (time.monotonic() - started)
    store.close()
    print(json.dumps({"rate": rate, "memory": memory}))


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))

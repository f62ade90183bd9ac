"""How the worker may use the cores: decided before torch is imported, so by its parent.

OpenMP threads that spin while they wait collapse on a shared machine: two threads with the
default spin gave 4 tokens a second beside busy neighbours, passive ones 81. On a quiet
machine a shorter spin is as fast as the default.
"""

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["usable_cores", "worker_environment"]


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and its container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = Path("/sys/fs/cgroup/cpu.max")
    if quota.exists():
        most, period = quota.read_text().split()[:2]
        if most != "max":
            cores = min(cores, max(1, int(most) // int(period)))
    return cores


def worker_environment(threads: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """The worker's environment; what the user has set about OpenMP waiting stays."""
    cores = usable_cores()
    env = dict(inherited)
    env["OMP_NUM_THREADS"] = str(threads or cores)
    env["TOKENIZERS_PARALLELISM"] = "false"
    env["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # nobody sees them, and they hide last words
    env.setdefault("MALLOC_MMAP_THRESHOLD_", str(32 << 20))  # the most that glibc takes
    env.setdefault("MALLOC_TRIM_THRESHOLD_", str(64 << 30))
    if "GOMP_SPINCOUNT" not in env and "OMP_WAIT_POLICY" not in env:
        busy = hasattr(os, "getloadavg") and os.getloadavg()[0] > cores
        if busy or env.get("CI"):
            env["OMP_WAIT_POLICY"] = "PASSIVE"
        else:
            env["GOMP_SPINCOUNT"] = "100000"
    return env

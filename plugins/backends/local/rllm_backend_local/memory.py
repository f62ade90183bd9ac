"""What a model takes of this machine's memory, told before it is taken."""

from pathlib import Path

from rllm_core.errors import ConfigError

__all__ = ["available_memory", "plan_memory"]


def plan_memory(count: int, trained: int, *, bf16: bool) -> tuple[int, str]:
    """Bytes for the sampler's cache, and the estimate in words; refuses what cannot fit."""
    free = available_memory()
    copy = count * (2 if bf16 else 4)
    training = trained * 12
    cache = max(0, (free - copy - training) // 2)
    gib = 1 / 2**30
    log = (
        f"{count:,} parameters, {trained:,} trained, {'bf16' if bf16 else 'fp32'} compute; "
        f"memory: weights {count * 4 * gib:.2f} GiB, sampler {copy * gib:.2f}, gradients and "
        f"optimizer {training * gib:.2f} (once training starts), sampler cache up to "
        f"{cache * gib:.2f}, free {free * gib:.2f}"
    )
    if copy > free:
        raise ConfigError(
            f"the model does not fit into memory: {log}",
            remedy="Free memory, or use a smaller model.",
        )
    return cache, log


def available_memory() -> int:
    """Bytes that may still be taken: of the machine, and of the container if it is limited."""
    info = Path("/proc/meminfo")
    if not info.exists():
        return 8 << 30
    lines = dict(line.split(":", 1) for line in info.read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = (Path("/sys/fs/cgroup") / f for f in ("memory.max", "memory.current"))
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
        free = min(free, int(text) - int(used.read_text()))
    return max(free, 0)

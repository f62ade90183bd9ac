"""Start-up: CPU of `import rllm_core` and of the commands, beside bare Python and click.

    python tests/perf/startup.py [runs] [packages]

Every figure is the least CPU time (user + system, in ms) of `runs` fresh processes, so that a
busy machine does not count. With `packages`, that many generated plugin packages are installed
in a temporary directory first.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

CASES = {
    "python -c pass": ["-c", "pass"],
    "import click": ["-c", "import click"],
    "import rllm_core": ["-c", "import rllm_core"],
    "import rllm": ["-c", "import rllm"],
    "rllm --help": ["-m", "rllm_core.cli", "--help"],
    "rllm plugins": ["-m", "rllm_core.cli", "plugins"],
}


def cpu(arguments: list[str], environ: dict[str, str], runs: int) -> float:
    """Least CPU milliseconds of a fresh process."""
    best = float("inf")
    for _ in range(runs + 1):  # the first one writes bytecode
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *arguments], check=True, env=environ, stdout=subprocess.DEVNULL
        )
        after = getrusage(RUSAGE_CHILDREN)
        user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
        best = min(best, user + system)
    return best * 1000


def generate(folder: Path, packages: int) -> None:
    """That many small plugin packages."""
    for number in range(packages):
        module = f"acme_plugin_{number}"
        (folder / f"{module}.py").write_text("raise SystemExit('imported')\n")
        info = folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: acme-plugin-{number}\nVersion: 1.0\nSummary: One.\n"
        )
        (info / "entry_points.txt").write_text(f"[rllm.harnesses]\nacme-{number} = {module}\n")


def main() -> None:
    """Measure every case and print it beside bare Python."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    packages = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), packages)
        environ = {**os.environ, "PYTHONPATH": folder, "RLLM_HOME": folder}
        times = {name: cpu(arguments, environ, runs) for name, arguments in CASES.items()}
    bare, click = times["python -c pass"], times["import click"]
    print(f"{packages} generated packages; least of {runs} runs\n")
    print(f"{'what':<20} {'CPU ms':>8} {'over bare':>10} {'of click':>9}")
    for name, spent in times.items():
        print(f"{name:<20} {spent:>8.1f} {spent - bare:>10.1f} {spent / click:>9.2f}")


if __name__ == "__main__":
    main()

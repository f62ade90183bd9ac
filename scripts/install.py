"""Make the checkout's virtual environment and install packages of this repository into it.

The Makefile calls this with the Python that the environment is to have; only the standard library
is used. pip installs uv, and uv the rest: it makes dozens of editable installs in the time pip
needs for one, and says what it will download before it does. Where packages come from is pip's
setting alone (its files and variables are read and handed to uv), so a machine on which
`pip install` works needs nothing more.

    python3.11 scripts/install.py --extras test,tokens --workspace --stamp .venv/.test
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
UNFINISHED = VENV / ".unfinished"  # lies there while packages are written

TORCH = "torch==2.13.0"  # the release that the tests' numbers were measured with
UV = "uv>=0.9,<0.14"  # the range of uv_build in every pyproject.toml

# pip's settings and the variables by which uv takes the same; uv separates some lists by commas.
UV_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "proxy": ("ALL_PROXY", " "),
}


def main() -> int:
    """Install what the command line names; the exit status is that of the step that failed."""
    arguments = parse_arguments()
    began = time.monotonic()
    try:
        make_venv()
        environment = uv_environment()
        packages = list(requirements(arguments))
        report_download(packages, arguments.torch_index, environment)
        uv(
            ["install", *torch_source(arguments.torch_index), "-r", "-"],
            packages,
            environment,
        )
    except subprocess.CalledProcessError as error:
        # A tool that gave up by itself left the environment whole; one that was killed did not.
        if 0 < error.returncode < 128:
            UNFINISHED.unlink(missing_ok=True)
        return error.returncode if error.returncode > 0 else 1
    except KeyboardInterrupt:
        return 130
    UNFINISHED.unlink()
    if arguments.stamp:
        arguments.stamp.touch()
    print(f"installed in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("paths", nargs="*", help="plugin folders to install, editable")
    parser.add_argument("--extras", default="", help="extras of rllm-core, separated by commas")
    parser.add_argument("--workspace", action="store_true", help="every plugin of the workspace")
    parser.add_argument("--torch", action="store_true", help=f"also {TORCH}, needed or not")
    parser.add_argument("--torch-index", default="", help="index or folder to take torch from")
    parser.add_argument("--stamp", type=Path, help="file to touch once all is installed")
    return parser.parse_args()


def make_venv() -> None:
    """Make .venv with pip and uv in it, unless a whole one is there."""
    if UNFINISHED.exists() or (VENV.exists() and not runs(PYTHON)):
        print("an earlier installation was cut short: starting again", flush=True)
        shutil.rmtree(VENV)
    if not VENV.exists():
        print(f"making .venv with Python {sys.version.split()[0]}", flush=True)
        VENV.mkdir()
        UNFINISHED.touch()
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    UNFINISHED.touch()
    if subprocess.run(
        [PYTHON, "-m", "uv", "--version"], capture_output=True, check=False
    ).returncode:
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", UV], check=True)


def runs(python: Path) -> bool:
    """Tell whether this interpreter starts: the one it links to may be gone."""
    try:
        return subprocess.run([python, "-c", ""], check=False).returncode == 0
    except OSError:
        return False


def requirements(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of a requirements file: the core, plugins, and torch if one of them is."""
    extras = f"[{arguments.extras}]" if arguments.extras else ""
    yield f"-e .{extras}"
    folders = [ROOT / path for path in arguments.paths]
    if arguments.workspace:
        folders += workspace_members()
    for folder in folders:
        yield f"-e ./{folder.relative_to(ROOT).as_posix()}"
    if arguments.torch or folders:
        yield TORCH


def workspace_members() -> Iterator[Path]:
    """Yield the folders of the plugins that share one environment, as pyproject.toml lists them."""
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]
    apart = {path for pattern in workspace.get("exclude", ()) for path in ROOT.glob(pattern)}
    for pattern in workspace["members"]:
        yield from sorted(
            path
            for path in ROOT.glob(pattern)
            if path not in apart and (path / "pyproject.toml").exists()
        )


def uv_environment() -> dict[str, str]:
    """Return the environment in which uv looks where pip would look.

    pip has three layers for one command, of which a later replaces an earlier: `global`,
    `install`, and variables (`:env:`). A variable of uv's own that the user set stays.
    """
    listed = subprocess.run(
        [PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    layers: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        layer, _, name = key.rpartition(".")
        if layer in layers:
            layers[layer][name] = str(ast.literal_eval(value))
    settings = layers["global"] | layers["install"] | layers[":env:"]
    taken = {
        variable: separator.join(settings[name].split())
        for name, (variable, separator) in UV_VARIABLES.items()
        if settings.get(name)
    }
    # As pip does: the best version of all indexes, not the first index that knows the name.
    ours = {"UV_INDEX_STRATEGY": "unsafe-best-match", "VIRTUAL_ENV": str(VENV)}
    return taken | ours | os.environ


def torch_source(index: str) -> list[str]:
    """Return uv's options for one more place to look: a folder of wheels or an index."""
    if not index:
        return []
    return ["--find-links" if Path(index).is_dir() else "--index", index]


def report_download(packages: list[str], torch_index: str, environment: dict[str, str]) -> None:
    """Print how much will be fetched at most, and the remedy where that means CUDA for torch."""
    plan = uv(
        ["compile", "--quiet", "--format", "pylock.toml", *torch_source(torch_index), "-"],
        packages,
        environment,
        capture=True,
    )
    sizes = {package["name"]: download_size(package) for package in tomllib.loads(plan)["packages"]}
    total = sum(sizes.values()) / 1e6
    print(f"{len(sizes)} packages, {total:,.0f} MB to fetch if nothing is cached", flush=True)
    cuda = sum(size for name, size in sizes.items() if name.startswith("nvidia-")) / 1e6
    if cuda:
        print(
            f"{cuda:,.0f} MB of that are CUDA libraries: pip's index offers only CUDA builds of"
            " torch.\nNothing here needs a GPU. To fetch less, interrupt this and add"
            " TORCH_INDEX=URL to the make\ncommand, with an index (or a folder of wheels) that has"
            " CPU builds.",
            flush=True,
        )


def download_size(package: dict[str, Any]) -> int:
    """Return the bytes that one package of a lock file will be fetched in: none for a local file.

    Indexes that give no sizes are asked for the file's head; what stays unknown counts nothing.
    """
    files = package.get("wheels") or [package.get("sdist", {})]
    url = str(files[0].get("url", ""))
    if "size" in files[0] or not url.startswith(("http:", "https:")):
        return int(files[0].get("size", 0))
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310
            return int(reply.headers.get("Content-Length", 0))
    except OSError:
        return 0


def uv(
    command: list[str], packages: list[str], environment: dict[str, str], *, capture: bool = False
) -> str:
    """Run `uv pip` with these requirements on its standard input; return what it printed."""
    done = subprocess.run(
        [PYTHON, "-m", "uv", "pip", *command],
        cwd=ROOT,
        env=environment,
        input="\n".join(packages),
        stdout=subprocess.PIPE if capture else None,
        text=True,
        check=True,
    )
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main())

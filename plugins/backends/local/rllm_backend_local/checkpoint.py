"""In the worker: checkpoints and exports, each written beside its place and renamed into it."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from rllm_backend_local import tiny
from rllm_backend_local.loading import Loaded
from rllm_backend_local.sampler import Sampler
from rllm_backend_local.trainer import Trainer
from rllm_core.errors import ConfigError

__all__ = ["export", "load", "save"]

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "rllm_renderer.json",
)


def save(trainer: Trainer, sampler: Sampler, directory: Path) -> None:
    """Trained weights, optimizer, random states."""
    with _renamed_into(directory) as place:
        trained = {n: p.detach() for n, p in _trained(trainer.model)}
        save_file(trained, place / "weights.safetensors")
        if trainer.optimizer is not None:
            torch.save(trainer.optimizer.state_dict(), place / "optimizer.pt")
        torch.save(torch.get_rng_state(), place / "random.pt")
        state = {"version": sampler.version, "unseeded": sampler.unseeded}
        (place / "state.json").write_text(json.dumps(state))


def load(trainer: Trainer, sampler: Sampler, directory: Path) -> None:
    """Restore what `save` wrote; the sampler follows at the next publish."""
    if not (directory / "state.json").exists():
        raise ConfigError(f"{directory} is not a checkpoint of the local backend")
    weights = load_file(directory / "weights.safetensors")
    mine = dict(_trained(trainer.model))
    differing = [
        name
        for name in mine.keys() | weights.keys()
        if name not in mine or name not in weights or mine[name].shape != weights[name].shape
    ]
    if differing:
        raise ConfigError(
            f"{directory} holds another model: {len(differing)} tensors differ, such as "
            f"{min(differing)!r}",
            remedy="Use the model, backend.mode and backend.lora_rank that it was saved with.",
        )
    with torch.no_grad():
        for name, parameter in mine.items():
            parameter.copy_(weights[name])
    trainer.model.zero_grad(set_to_none=True)
    trainer.pending = []
    trainer.optimizer = None
    if (directory / "optimizer.pt").exists():
        state = torch.load(directory / "optimizer.pt", weights_only=True)
        trainer.adamw().load_state_dict(state)
    torch.set_rng_state(torch.load(directory / "random.pt", weights_only=True))
    sampler.unseeded = json.loads((directory / "state.json").read_text())["unseeded"]


def export(loaded: Loaded, directory: Path) -> None:
    """A Hugging Face directory (or a PEFT adapter) with tokenizer files."""
    with _renamed_into(directory) as place:
        loaded.model.save_pretrained(place)
        if loaded.source.path is None:
            tiny.write_tokenizer(place)
            return
        for name in _TOKENIZER_FILES:
            file = Path(loaded.source.path) / name
            if file.exists():
                shutil.copy(file, place / name)


def _trained(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    return ((n, p) for n, p in model.named_parameters() if p.requires_grad)


@contextmanager
def _renamed_into(directory: Path) -> Iterator[Path]:
    """A temporary directory beside `directory` that takes its name once it is whole."""
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory} exists and is not empty", remedy="Give a new directory.")
    directory.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        yield place
        place.chmod(0o755)
        place.rename(directory)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise

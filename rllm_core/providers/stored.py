"""What users set up: `$RLLM_HOME/providers.toml`, and `keys.toml` beside it, theirs alone."""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from attrs import evolve

from rllm_core.config.home import home, writable_home
from rllm_core.errors import ConfigError
from rllm_core.providers.known import KNOWN, Provider

__all__ = [
    "default_model",
    "forget",
    "key_of",
    "providers",
    "remember",
    "set_default_model",
    "stored_keys",
]


def key_of(provider: Provider, environ: Mapping[str, str] | None = None) -> str | None:
    """A provider's key: the environment's, else the stored one, else None."""
    found = (os.environ if environ is None else environ).get(provider.api_key_env or "")
    return found or (stored_keys().get(provider.name) if provider.stored_key else None)


def providers() -> dict[str, Provider]:
    """Every provider by name: the known ones, and those that the user set up."""
    data = _read("providers.toml")
    keys = stored_keys()
    found = dict(KNOWN)
    for name, table in data.get("providers", {}).items():
        base = found.get(name, Provider(name, ""))
        found[name] = evolve(
            base,
            base_url=table.get("base_url", base.base_url),
            api_key_env=table.get("api_key_env", base.api_key_env),
            custom=True,
        )
    return {name: evolve(each, stored_key=name in keys) for name, each in found.items()}


def remember(provider: Provider, key: str | None = None) -> None:
    """Set a provider up; `key` is stored for its owner's eyes only, where one is given.

    A key that was stored for the provider's former address is not carried to another host.
    """
    before = providers().get(provider.name)
    data = _read("providers.toml")
    table = {"base_url": provider.base_url}
    if provider.api_key_env:
        table["api_key_env"] = provider.api_key_env
    data.setdefault("providers", {})[provider.name] = table
    _write("providers.toml", data)
    keys = stored_keys()
    moved = before is not None and urlsplit(before.base_url).netloc != _host(provider)
    if key:
        _write("keys.toml", {**keys, provider.name: key})
    elif moved and provider.name in keys:
        _write("keys.toml", {name: kept for name, kept in keys.items() if name != provider.name})


def _host(provider: Provider) -> str:
    return urlsplit(provider.base_url).netloc


def forget(name: str) -> None:
    """Remove what was set up for a provider, its stored key included."""
    data, keys = _read("providers.toml"), stored_keys()
    if name not in data.get("providers", {}) and name not in keys:
        raise ConfigError(
            f"provider '{name}' was never set up", remedy="`rllm model list` shows them"
        )
    data.get("providers", {}).pop(name, None)
    if data.get("default", "").startswith(f"{name}/"):
        del data["default"]
    _write("providers.toml", data)
    if keys.pop(name, None) is not None:
        _write("keys.toml", keys)


def default_model() -> str | None:
    """The model that evaluations use when none is named (`rllm model use`)."""
    name = _read("providers.toml").get("default")
    return str(name) if name else None


def set_default_model(name: str) -> None:
    """Choose the model of evaluations that name none."""
    _write("providers.toml", {**_read("providers.toml"), "default": name})


def stored_keys() -> dict[str, str]:
    """The keys that the user chose to store, by provider."""
    return {str(name): str(key) for name, key in _read("keys.toml").items()}


def _read(name: str) -> dict[str, Any]:
    import tomllib

    path = home() / name
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        what = type(error).__name__ if name == "keys.toml" else error  # never quote a key
        raise ConfigError(
            f"cannot read {path}: {what}", remedy="mend it, or remove it and `rllm model setup`"
        ) from None


def _write(name: str, data: Mapping[str, Any]) -> None:
    """Replace a file in one step, readable and writable by its owner alone."""
    import tomli_w

    folder = writable_home()
    fresh = folder / f".{name}.{os.getpid()}"
    try:
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            tomli_w.dump(data, stream)
        fresh.replace(folder / name)
    except OSError as error:
        raise ConfigError(f"cannot write {folder / name}: {error.strerror}") from error

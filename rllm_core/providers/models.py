"""What a model's name stands for: a server's model, or weights that a backend loads."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from attrs import evolve, frozen

from rllm_core.config.home import home
from rllm_core.errors import ConfigError
from rllm_core.providers.known import Provider
from rllm_core.providers.stored import key_of, providers
from rllm_core.upstream import WireUpstream

__all__ = ["BUILT_IN_MODELS", "Local", "Wire", "checked_url", "resolve_model"]

BUILT_IN_MODELS = ("tiny", "smollm2-135m")
"""Models that the local backend brings along."""


@frozen
class Wire:
    """A model behind an HTTP server."""

    base_url: str
    model: str
    provider: Provider

    @property
    def name(self) -> str:
        """How messages name it."""
        return f"{self.provider.name}/{self.model}"

    def upstream(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        context_window: int | None = None,
        keyless: bool = False,
    ) -> WireUpstream:
        """Where the gateway sends its calls; ConfigError where its key is missing.

        `keyless`: nothing will be sent (a replay), and no key is needed.
        """
        if not keyless:
            self.check_key(environ)
        key = key_of(self.provider, environ)
        tokens = self.provider.name == "vllm"  # it knows `return_token_ids`; others may refuse it
        return WireUpstream(
            self.base_url, self.model, key, context_window=context_window, token_ids=tokens
        )

    def check_key(self, environ: Mapping[str, str] | None = None) -> None:
        """Raise ConfigError, naming the environment variable, where the key is missing."""
        variable = self.provider.api_key_env
        if variable is not None and not key_of(self.provider, environ):
            raise ConfigError(
                f"model '{self.name}' needs a key, and {variable} is not set",
                remedy=f"export {variable}=…   or   rllm model setup {self.provider.name}",
            )


@frozen
class Local:
    """A model that a backend of ours loads: a built-in name, a hub name or a directory."""

    name: str
    directory: Path | None = None

    @property
    def source(self) -> str:
        """What a backend is told to load."""
        return str(self.directory) if self.directory is not None else self.name


def resolve_model(
    name: str, *, base_url: str | None = None, api_key_env: str | None = None
) -> Wire | Local:
    """What a model name stands for; ConfigError where it stands for nothing."""
    name = name.strip()
    if not name:
        raise ConfigError("the model has no name", remedy="--model provider/model")
    if base_url is not None:
        return _at(checked_url(base_url), name, api_key_env)
    prefix, _, rest = name.partition("/")
    if prefix == "hf" and rest:
        return Local(rest)
    local = _built_in(name) or _directory(name) or _of_run(name)
    if local is not None:
        return local
    provider = providers().get(prefix)
    if provider is not None and rest:
        if api_key_env is not None:
            provider = evolve(provider, api_key_env=api_key_env, stored_key=False)
        return Wire(provider.base_url, rest, provider)
    if rest:
        return Local(name)
    raise ConfigError(f"unknown model '{name}'", remedy=_guesses(name))


def _guesses(name: str) -> str:
    from rllm_core.plugins.options import nearest

    hint = nearest(name, (*BUILT_IN_MODELS, *providers()))
    forms = "provider/model (openai/gpt-5-mini), a hub name (org/name), a directory, a run's id"
    built_in = f"built in: {', '.join(BUILT_IN_MODELS)}"
    return "   ".join(part for part in (hint, f"a model is {forms}", built_in) if part)


def _built_in(name: str) -> Local | None:
    return Local(name) if name in BUILT_IN_MODELS else None


def _directory(name: str) -> Local | None:
    path = Path(name).expanduser()
    explicit = name.startswith(("/", "./", "../", "~"))
    if path.is_dir() and (explicit or (path / "config.json").is_file()):
        return Local(name, path.absolute())
    if explicit:
        raise ConfigError(
            f"model '{name}': there is no directory {path.absolute()}",
            remedy="a directory of a model holds config.json and safetensors files",
        )
    return None


def _of_run(name: str) -> Local | None:
    """The model that a run exported, by the run's id."""
    run = home() / "runs" / name
    if "/" in name or name in {".", ".."} or not run.is_dir():
        return None
    exported = run / "export"
    if not exported.is_dir():
        raise ConfigError(
            f"run '{name}' has no exported model",
            remedy="a training run exports its model when it ends; `rllm runs show` tells more",
        )
    return Local(name, exported)


def checked_url(base_url: str) -> str:
    """A server's address, ending in its version path (`/v1` where it has no path)."""
    parts = urlsplit(base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            f"base_url '{base_url}' is no http address",
            remedy="e.g. http://localhost:8000/v1",
        )
    if parts.username or parts.password:
        raise ConfigError(
            "base_url holds a password", remedy="name its key's environment variable: api_key_env"
        )
    return base_url.rstrip("/") if parts.path.strip("/") else f"{base_url.rstrip('/')}/v1"


def _at(base_url: str, name: str, api_key_env: str | None) -> Wire:
    """A model on a server of the user's choice: its name is passed on as it stands.

    Only the prefix of a self-run server, or of the provider whose address this is, is cut.
    A provider's key goes to that provider's host alone.
    """
    if name in BUILT_IN_MODELS or name.startswith(("/", "./", "../", "~")):
        raise ConfigError(
            f"model '{name}' is loaded on this machine, yet base_url names a server",
            remedy="leave out one of them",
        )
    prefix, _, rest = name.partition("/")
    host, known = urlsplit(base_url).netloc, providers()
    provider = next((p for p in known.values() if urlsplit(p.base_url).netloc == host), None)
    named = known.get(prefix)
    if rest and named is not None and (named.own or named == provider):
        name = rest
        provider = provider or Provider(named.name, base_url, own=True)
    provider = provider or Provider("server", base_url)
    if api_key_env is not None:
        provider = evolve(provider, api_key_env=api_key_env, stored_key=False)
    return Wire(base_url, name, provider)

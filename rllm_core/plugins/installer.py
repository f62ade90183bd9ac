"""The installer of the running interpreter's environment: uv where uv made it, else pip.

A source that is named on the command line is the only one: the installer's own files and
variables are then set aside, so that no further index can slip a package in; how to reach a
server (certificates, proxy) is kept. Without one, the installer looks where it is configured to,
and we say where that is.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from attrs import field, frozen

from rllm_core.errors import ConfigError

__all__ = ["Installer", "Source", "without_password"]

PIP_SOURCES = ("index-url", "extra-index-url", "find-links", "no-index")
PIP_KEPT = ("cert", "client-cert", "proxy", "trusted-host", "timeout", "retries", "constraint")
"""Settings of pip that say how, not where."""
UV_SOURCES = (
    "UV_CONFIG_FILE",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_NO_INDEX",
)


@frozen
class Source:
    """Where packages are taken from: `index` (a URL or folder), folders or pages of links."""

    index: str | None = None
    links: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Whether the user named one."""
        return self.index is not None or bool(self.links)

    def arguments(self) -> list[str]:
        """The flags, which pip and uv share. Links alone mean: no index at all."""
        if not self.named:
            return []
        index = ["--no-index"] if self.index is None else ["--index-url", self.index]
        return [*index, *(word for link in self.links for word in ("--find-links", link))]

    def spoken(self) -> str:
        """The source in words, without passwords."""
        index = [] if self.index is None else [f"the index {without_password(self.index)}"]
        return " and ".join([*index, *map(without_password, self.links)]) + ", and nowhere else"


@frozen
class Installer:
    """A tool that changes the environment of `python`; `command` runs it."""

    name: str
    command: tuple[str, ...]
    python: str = field(default=sys.executable)

    @classmethod
    def here(cls) -> "Installer":
        """The running interpreter's; ConfigError where there is none."""
        uv = _uv()
        if _made_by_uv() and uv:
            return cls("uv", (*uv, "pip"))
        if importlib.util.find_spec("pip") is not None:
            return cls("pip", (sys.executable, "-m", "pip"))
        if uv:
            return cls("uv", (*uv, "pip"))
        raise ConfigError(
            f"the environment {sys.prefix} has neither pip nor uv",
            remedy=f"{sys.executable} -m ensurepip   or install uv",
        )

    @property
    def spoken(self) -> str:
        """How its install command begins, as a user would type it in this environment."""
        return "uv pip install" if self.name == "uv" else "pip install"

    def install(
        self, requirements: Iterable[str], source: Source, *, upgrade: bool = False
    ) -> list[str]:
        """The command that installs."""
        more = ["--upgrade"] if upgrade else []
        apart = ["--no-config"] if source.named and self.name == "uv" else []
        words = [*self._words("install"), *apart, *source.arguments(), *more]
        return [*words, *requirements]

    def uninstall(self, packages: Iterable[str]) -> list[str]:
        """The command that removes."""
        yes = ["--yes"] if self.name == "pip" else []
        return [*self._words("uninstall"), *yes, *packages]

    def environment(self, source: Source) -> dict[str, str]:
        """The variables to run it with: where a source is named, none that names another."""
        environ = dict(os.environ)
        if not source.named:
            return environ
        if self.name == "uv":
            return {key: value for key, value in environ.items() if key not in UV_SOURCES}
        settings = self._pip_settings()
        for key in PIP_SOURCES:
            environ.pop(_variable(key), None)
        kept = {_variable(key): settings[key] for key in PIP_KEPT if settings.get(key)}
        return environ | kept | {"PIP_CONFIG_FILE": os.devnull}

    def configured(self) -> str:
        """Where it looks when nothing is named, in words."""
        if self.name == "uv":
            found = {key.lower(): os.environ[key] for key in UV_SOURCES if os.environ.get(key)}
        else:
            settings = self._pip_settings()
            found = {key: settings[key] for key in PIP_SOURCES if settings.get(key)}
        places = [
            f"{key} {' '.join(map(without_password, value.split()))}"
            for key, value in found.items()
        ]
        indexes = {"index-url", "uv_default_index", "uv_index_url", "no-index", "uv_no_index"}
        default = [] if indexes & found.keys() else ["its default index"]
        return f"where {self.name} is configured to look: {', '.join([*default, *places])}"

    def _words(self, action: str) -> list[str]:
        where = ["--python", self.python] if self.name == "uv" else []
        return [*self.command, action, *where]

    def _pip_settings(self) -> Mapping[str, str]:
        """Pip's settings for `pip install`, files and variables together; later layers win."""
        import ast

        done = subprocess.run(  # noqa: S603 - pip of this very interpreter
            [*self.command, "config", "list"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        layers: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
        for line in done.stdout.splitlines():
            key, _, value = line.partition("=")
            layer, _, name = key.rpartition(".")
            if layer in layers:
                layers[layer][name] = " ".join(str(ast.literal_eval(value)).split())
        return layers["global"] | layers["install"] | layers[":env:"]


def without_password(url: str) -> str:
    """A URL as it may be printed: user and password become `***`."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]))


def _variable(setting: str) -> str:
    return "PIP_" + setting.upper().replace("-", "_")


def _made_by_uv() -> bool:
    try:
        text = Path(sys.prefix, "pyvenv.cfg").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.partition("=")[0].strip() == "uv" for line in text.splitlines())


def _uv() -> Sequence[str]:
    """How to start uv: the command, else the package in this environment, else nothing."""
    found = shutil.which("uv")
    if found:
        return (found,)
    return (sys.executable, "-m", "uv") if importlib.util.find_spec("uv") else ()

"""What a plugin's package requires and this environment lacks, from metadata alone.

Only `rllm plugins` asks: parsing requirements costs more than the rest of the listing. Looked
at are the package's own requirements and the extras that it asks for of them
(`rllm-core[data]` needs what rllm-core lists under `extra == "data"`); what those require in
turn is the installer's business.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from rllm_core.plugins.index import distributions, metadata_of, normalize

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["Installed", "install_command"]


@frozen
class Installed:
    """The installed distributions: normalised name → metadata folder, the one imported first."""

    folders: Mapping[str, Path]

    @classmethod
    def on(cls, path: Iterable[str]) -> "Installed":
        """Those on a `sys.path`; read from folder names, no file is opened."""
        folders: dict[str, Path] = {}
        for info in distributions(path):
            folders.setdefault(_canonical(info.stem.partition("-")[0]), info)
        return cls(folders)

    def version(self, name: str) -> str | None:
        """The installed version of a distribution, None where it is not there."""
        info = self.folders.get(_canonical(name))
        return None if info is None else info.stem.split("-")[1] if "-" in info.stem else "0"

    def unmet(self, info: Path) -> list[tuple[str, str]]:
        """(requirement, what is wrong) of each that is not met; ValueError if one is no such."""
        found: list[tuple[str, str]] = []
        for requirement in _required(info, ""):
            found += self._missing(requirement)
            for extra in sorted(requirement.extras):
                folder = self.folders.get(_canonical(requirement.name))
                if folder is not None:
                    for of_extra in _required(folder, extra):
                        found += self._missing(of_extra)
        return list(dict.fromkeys(found))

    def _missing(self, requirement: "Requirement") -> Iterator[tuple[str, str]]:
        version = self.version(requirement.name)
        text = f"{requirement.name}{requirement.specifier}"
        if version is None:
            yield text, f"{text}, which is not installed"
        elif not requirement.specifier.contains(version, prereleases=True):
            yield text, f"{text}, and {version} is installed"


def _canonical(name: str) -> str:
    """A distribution's name in the form in which installers compare it."""
    return normalize(name).replace(".", "-")


def _required(info: Path, extra: str) -> Iterator["Requirement"]:
    """The requirements of a distribution in this environment, or those of one of its extras."""
    for line in metadata_of(info).get("Requires-Dist", ()):
        requirement = _parsed(line)
        marker = requirement.marker
        plain = marker is None or marker.evaluate({"extra": ""})
        if (not extra and plain) or (
            extra and marker is not None and not plain and marker.evaluate({"extra": extra})
        ):
            yield requirement


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> "Requirement":
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{text!r:.80} is no requirement: {reason}") from None


def install_command(requirements: Iterable[str]) -> str:
    """The command line that installs libraries here, with the environment's own installer."""
    from rllm_core.plugins.installer import Installer

    words = " ".join(f"'{each}'" if set(each) & set("<>=!~;[ ") else each for each in requirements)
    return f"{Installer.here().spoken} {words}"

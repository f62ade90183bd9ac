"""Where the rows of a benchmark come from: the Hugging Face hub, or a function.

A source has `rows(split)`, which yields `Located` rows lazily and always in the same order. A
local JSONL file (`read_jsonl`) stands in for any source, through the same code after it.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import field, frozen

from rllm_core.benchmark.files import Located, Row
from rllm_core.errors import ConfigError

__all__ = ["GeneratedRows", "HubRows", "Source"]


class Source(Protocol):
    """Where rows come from."""

    def rows(self, split: str) -> Iterator[Located]:
        """The rows of one of the source's own splits."""
        ...


@frozen
class HubRows:
    """A data set of the Hugging Face hub, at a pinned revision, through `datasets`.

    `revision` is a commit hash: the rows never change under a run. The library's cache serves
    later runs offline.
    """

    repo: str
    config: str | None = field(default=None, kw_only=True)
    revision: str = field(kw_only=True)
    licence: str = field(kw_only=True)

    def rows(self, split: str) -> Iterator[Located]:
        """The rows of a split; ConfigError where they are neither cached nor reachable."""
        for index, row in enumerate(self._load(split)):
            yield Located(f"{self.repo} {split} row {index}", row)

    def _load(self, split: str) -> Any:
        try:
            import datasets
        except ImportError as error:
            raise ConfigError(
                f"{self.repo} is read through the library `datasets`, which is not installed",
                remedy="pip install 'rllm-core[data]', or give a local copy: benchmark.file=PATH",
            ) from error
        if Path(self.repo).is_dir():
            raise ConfigError(
                f"`datasets` would read the directory {Path(self.repo).absolute()} in place of "
                f"the hub's {self.repo}",
                remedy="run from another directory, or give a local JSONL: benchmark.file=PATH",
            )
        try:
            loaded = datasets.load_dataset(
                self.repo, self.config, split=split, revision=self.revision
            )
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            # The hub's many errors (offline, no such revision, gated) all derive from these.
            reason = str(error).strip().splitlines()[:1]
            raise self._not_loaded(split, f"{type(error).__name__}: {''.join(reason)}") from error
        if not self._is_pinned(loaded):
            raise self._not_loaded(split, "only another revision is in the library's cache")
        return loaded

    def _is_pinned(self, loaded: Any) -> bool:
        """Whether the rows are the pinned revision's.

        Offline, `datasets` falls back to whatever revision it has; its cache's paths tell.
        """
        files = [file["filename"] for file in loaded.cache_files]
        return all(self.revision in Path(file).parts for file in files)

    def _not_loaded(self, split: str, reason: str) -> ConfigError:
        return ConfigError(
            f"{self.repo} (revision {self.revision[:12]}, split {split}) could not be loaded: "
            f"{reason:.300}",
            remedy="it is fetched from the Hugging Face hub once and cached; without a network "
            "give a local JSONL with the same columns: benchmark.file=PATH",
        )


@frozen
class GeneratedRows:
    """Rows that a function makes: `make(split, index)` → row, for `sizes[split]` indices."""

    make: Callable[[str, int], Row]
    sizes: Mapping[str, int]

    def rows(self, split: str) -> Iterator[Located]:
        """The rows of a split."""
        for index in range(self.sizes[split]):
            yield Located(f"generated {split} row {index}", self.make(split, index))

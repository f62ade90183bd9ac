"""Where the rows of a benchmark come from: the Hugging Face hub, or a function.

A source has `rows(split)`, which yields `Located` rows lazily and always in the same order. A
local JSONL file (`read_jsonl`) stands in for any source, through the same code after it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from attrs import frozen

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
    config: str | None = None
    revision: str = ""
    licence: str = ""

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
        try:
            return datasets.load_dataset(
                self.repo, self.config, split=split, revision=self.revision
            )
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            # The hub's many errors (offline, no such revision, gated) all derive from these.
            reason = str(error).strip().splitlines()[:1]
            raise ConfigError(
                f"{self.repo} (revision {self.revision[:12]}, split {split}) could not be loaded: "
                f"{type(error).__name__}: {''.join(reason):.300}",
                remedy="it is fetched from the Hugging Face hub once and cached; without a network "
                "give a local JSONL with the same columns: benchmark.file=PATH",
            ) from error


@frozen
class GeneratedRows:
    """Rows that a function makes: `make(split, index)` → row, for `sizes[split]` indices."""

    make: Callable[[str, int], Row]
    sizes: Mapping[str, int]

    def rows(self, split: str) -> Iterator[Located]:
        """The rows of a split."""
        for index in range(self.sizes[split]):
            yield Located(f"generated {split} row {index}", self.make(split, index))

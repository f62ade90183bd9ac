"""Where a setting came from, kept beside the setting so that an error can point at it."""

from collections.abc import Iterator, Mapping, Sequence

from attrs import Factory, frozen

__all__ = ["Origin", "Origins", "dotted"]


@frozen
class Origin:
    """A place that a user can look at: `runs/a.toml:14`, `--max`, `RLLM__RUN__SEED`, `python`.

    `given` is what was typed where the value was read out of text (an override, an
    environment variable): `name=7` means the text "7" wherever text is expected.
    """

    text: str
    given: str | None = None

    def __str__(self) -> str:
        return self.text


def dotted(path: Sequence[str]) -> str:
    """A path as users write it: `harness.max_turns`."""
    return ".".join(path)


@frozen
class Origins:
    """The origin of every setting that somebody made; a part of a value has its whole's."""

    places: Mapping[tuple[str, ...], Origin] = Factory(dict)

    def of(self, path: Sequence[str]) -> Origin | None:
        """The origin of the setting at this path, or of the nearest thing around it."""
        key = tuple(path)
        while key:
            if key in self.places:
                return self.places[key]
            key = key[:-1]
        return None

    def within(self, path: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """The paths below this one (itself included) that somebody set."""
        prefix = tuple(path)
        return (key for key in self.places if key[: len(prefix)] == prefix)

"""What there is to say about an installed plugin: its state, and what its class declares.

`survey` looks without importing; `survey(check=True)` loads every plugin in its boundary.
`describe_plugin` loads one and reads its options and capabilities.
"""

import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from attrs import frozen

from rllm_core.errors import ConfigError
from rllm_core.plugins.index import KINDS, Entry, normalize
from rllm_core.plugins.kinds import has_options
from rllm_core.plugins.options import nearest
from rllm_core.plugins.shapes import describe

if TYPE_CHECKING:
    from rllm_core.plugins import Plugins

__all__ = ["Description", "OptionDescription", "Status", "describe_plugin", "survey"]


@frozen
class Status:
    """One line of `rllm plugins`. `state` is ok, broken or ambiguous; `reason` says more."""

    kind: str
    name: str
    package: str
    version: str
    state: str = "ok"
    reason: str = ""


@frozen
class OptionDescription:
    """One option: its type in words, its default as JSON data, its sentence."""

    name: str
    type: str
    default: Any
    required: bool
    doc: str


@frozen
class Description:
    """One plugin: `rllm plugins show`."""

    kind: str
    name: str
    package: str
    version: str
    summary: str
    doc: str
    source: str
    options: tuple[OptionDescription, ...] = ()
    capabilities: Mapping[str, Any] = attrs.Factory(dict)


def survey(plugins: "Plugins", kind: str | None = None, *, check: bool = False) -> list[Status]:
    """The state of every installed plugin, and of distributions that cannot be read."""
    found = [_status(plugins, entry, check) for entry in plugins.entries(kind)]
    if kind is None:
        found += [Status("?", "?", b.place, "?", "broken", b.reason) for b in plugins.index.bad]
    return found


def _status(plugins: "Plugins", entry: Entry, check: bool) -> Status:
    disabled = plugins.why_disabled(entry)
    if disabled is not None:
        return Status(entry.kind, entry.name, entry.package, entry.version, "disabled", disabled)
    rivals = plugins.rivals(entry)
    if rivals:
        others = " and ".join(e.package for e in rivals)
        reason = f"{others} offers it too; say {entry.package}/{entry.name}"
        state, why = ("ambiguous", reason)
    else:
        state, why = _absence(entry)
    if check and state != "broken":
        try:
            plugins.load(entry.kind, f"{entry.package}/{entry.name}")
        except ConfigError as error:
            state, why = "broken", f"{error.message}   {error.remedy or ''}".strip()
    return Status(entry.kind, entry.name, entry.package, entry.version, state, why)


def _absence(entry: Entry) -> tuple[str, str]:
    """Whether the entry's package can be found at all; nothing of it is imported."""
    top = entry.value.partition(":")[0].partition(".")[0].strip()
    try:
        if importlib.util.find_spec(top) is not None:
            return "ok", ""
    except (ImportError, ValueError):
        pass
    return "broken", f"its module {entry.value} is not there: pip install -U {entry.package}"


def describe_plugin(plugins: "Plugins", reference: str) -> Description:
    """What `kind/name`, or a name alone where one kind has it, is; ConfigError if broken."""
    entry = _find(plugins, reference)
    cls = plugins.load(entry.kind, f"{entry.package}/{entry.name}")
    return Description(
        kind=entry.kind,
        name=entry.name,
        package=entry.package,
        version=entry.version,
        summary=entry.summary,
        doc=inspect.cleandoc(_doc(cls)),
        source=_source(cls),
        options=tuple(_options(cls)) if has_options(entry.kind) else (),
        capabilities=_capabilities(cls),
    )


def _find(plugins: "Plugins", reference: str) -> Entry:
    kind, _, name = reference.partition("/")
    if name and kind in KINDS:
        return plugins.entry(kind, name)
    if name:
        kinds = f"kinds: {', '.join(KINDS)}"
        remedy = "   ".join(filter(None, (nearest(kind, KINDS), kinds)))
        raise ConfigError(f"there is no kind '{kind}'", remedy=remedy)
    named = [e for e in plugins.entries() if e.name == normalize(reference)]
    if len(named) == 1:
        return named[0]
    if named:
        choices = " or ".join(f"{e.kind}/{e.package}/{e.name}" for e in named)
        raise ConfigError(f"'{reference}' is the name of several plugins", remedy=f"say {choices}")
    hint = nearest(reference, [e.name for e in plugins.entries()])
    raise ConfigError(
        f"no plugin '{reference}' is installed", remedy=hint or "`rllm plugins` lists them"
    )


def _doc(cls: Any) -> str:
    return (getattr(cls, "__doc__", None) or getattr(cls, "help", None) or "").strip()


def _source(cls: Any) -> str:
    target = cls if isinstance(cls, type) else getattr(cls, "callback", None)
    try:
        return str(Path(inspect.getfile(target))) if target is not None else ""
    except (TypeError, OSError):
        return ""


def _options(cls: Any) -> Iterator[OptionDescription]:
    attrs.resolve_types(cls.Options)
    for a in attrs.fields(cls.Options):
        if a.init:
            required = a.default is attrs.NOTHING
            default = None if required else _default(a, cls.Options)
            doc = str(a.metadata.get("doc", ""))
            yield OptionDescription(a.alias, describe(a.type), default, required, doc)


def _default(attribute: Any, cls: Any) -> Any:
    default = attribute.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        if default.takes_self:
            return f"as {cls.__name__} works it out"
        default = default.factory()
    return _data(default)


def _capabilities(cls: Any) -> dict[str, Any]:
    found = getattr(cls, "capabilities", None)
    if found is None or not attrs.has(type(found)):
        return {}
    return {key: _data(value) for key, value in attrs.asdict(found, recurse=False).items()}


def _data(value: Any) -> Any:
    """A value as JSON data."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, (list, tuple)):
        return [_data(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _data(each) for key, each in value.items()}
    return str(value)

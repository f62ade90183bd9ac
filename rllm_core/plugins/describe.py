"""What there is to say about one installed plugin: what its class and its package declare."""

import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from attrs import frozen

from rllm_core.errors import ConfigError
from rllm_core.plugins.index import KINDS, Entry, metadata_of, normalize
from rllm_core.plugins.kinds import has_options
from rllm_core.plugins.options import nearest
from rllm_core.plugins.shapes import describe

if TYPE_CHECKING:
    from rllm_core.plugins import Plugins

__all__ = [
    "Description",
    "OptionDescription",
    "describe_plugin",
    "find_entry",
    "options_of",
    "readme_of",
]


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
    """One plugin: `rllm plugins show`.

    `documentation` is the address that its package gives, and `readme` whether the package
    carries a long description (`readme_of`).
    """

    kind: str
    name: str
    package: str
    version: str
    summary: str
    doc: str
    source: str
    options: tuple[OptionDescription, ...] = ()
    capabilities: Mapping[str, Any] = attrs.Factory(dict)
    documentation: str = ""
    requires: tuple[str, ...] = ()
    readme: bool = False


def describe_plugin(plugins: "Plugins", reference: str) -> Description:
    """What `kind/name`, or a name alone where one kind has it, is; ConfigError if broken."""
    entry = find_entry(plugins, reference)
    cls = plugins.load(entry.kind, f"{entry.package}/{entry.name}")
    return Description(
        kind=entry.kind,
        name=entry.name,
        package=entry.package,
        version=entry.version,
        summary=entry.summary,
        doc=inspect.cleandoc(_doc(cls)),
        source=_source(cls),
        options=tuple(options_of(cls)) if has_options(entry.kind) else (),
        capabilities=_capabilities(cls),
        documentation=_documentation(entry),
        requires=metadata_of(entry.info).get("Requires-Dist", ()),
        readme=bool(_long_description(entry)),
    )


def readme_of(plugins: "Plugins", reference: str) -> str:
    """The package's own description, usually its README; nothing is imported."""
    entry = find_entry(plugins, reference)
    text = _long_description(entry)
    if not text:
        raise ConfigError(f"{entry.package} {entry.version} carries no description")
    return text


def _long_description(entry: Entry) -> str:
    try:
        text = (entry.info / "METADATA").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.partition("\n\n")[2].strip()


def _documentation(entry: Entry) -> str:
    """The address of the documentation, else of the project, that the metadata gives."""
    headers = metadata_of(entry.info)
    links = dict(each.split(", ", 1) for each in headers.get("Project-URL", ()) if ", " in each)
    by_label = {label.lower(): url for label, url in links.items()}
    home = headers.get("Home-page", ("",))[0]
    return by_label.get("documentation") or by_label.get("homepage") or home


def find_entry(plugins: "Plugins", reference: str) -> Entry:
    """The entry of `kind/name`, or of a name that only one plugin has."""
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


def options_of(cls: Any) -> Iterator[OptionDescription]:
    """The options of a class, in their order."""
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

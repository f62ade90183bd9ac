"""The plugins that may be used here: what is installed, less what the user disabled for good.

`$RLLM_HOME/config.toml` holds standing preferences; so far its one table is `[plugins]`, with
the same keys as in a run file:

    [plugins]
    disable = ["harness/codex", "acme-evals"]
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rllm_core.config.home import home
from rllm_core.errors import ConfigError
from rllm_core.plugins import Plugins, Rule

if TYPE_CHECKING:
    from rllm_core.config.schema import PluginsTable, RunConfig

__all__ = ["STANDING", "installed_plugins", "rules_of", "typed_rules"]

STANDING = "config.toml"
"""The file of standing preferences in RLLM_HOME."""


def installed_plugins(typed: Iterable[str] = ()) -> Plugins:
    """What is installed, less the standing preferences and the `typed` patterns (`-p no:NAME`).

    ConfigError where one of these cannot hold, or the file cannot be read.
    """
    return Plugins.installed().without((*_standing_rules(), *typed_rules(typed)))


def typed_rules(patterns: Iterable[str]) -> tuple[Rule, ...]:
    """Rules that were typed for this command, each of which must match something."""
    return tuple(Rule(pattern, f"-p no:{pattern}", typed=True) for pattern in patterns)


def rules_of(config: "RunConfig") -> tuple[Rule, ...]:
    """The rules of a configuration's `[plugins]` table, with where it was written."""
    origin = config.origins.of(("plugins", "disable"))
    place = f"plugins.disable, {origin}" if origin else "plugins.disable"
    return tuple(Rule(pattern, place) for pattern in config.plugins.disable)


def _standing_rules() -> tuple[Rule, ...]:
    try:
        path = home() / STANDING
    except ConfigError:  # no home directory: no preferences either
        return ()
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    return tuple(Rule(name, str(path)) for name in _table(text, str(path)).disable)


def _table(text: str, name: str) -> "PluginsTable":
    from rllm_core.config.layers import Layers
    from rllm_core.config.schema import PluginsTable
    from rllm_core.plugins.options import Where, build, nearest, problem

    layers = Layers()
    layers.add_file(text, name)
    for section in layers.tree:
        if section != "plugins":
            remedy = nearest(section, ["plugins"]) or "its one table is [plugins]"
            raise problem((section,), "unknown table", layers.origins.of((section,)), remedy)
    table = layers.tree.get("plugins", {})
    if not isinstance(table, dict):
        raise problem(("plugins",), "expected a table", layers.origins.of(("plugins",)))
    where = Where(("plugins",), "[plugins]", "", layers.origins, "setting")
    return build(PluginsTable, table, where)

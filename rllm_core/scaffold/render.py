"""Writing a folder from template files.

A template is a file `NAME.template` under `templates/`; `$word`s in it are replaced
(`string.Template`: a dollar sign itself is `$$`), and so is a folder called `MODULE`, by the
package's name.
"""

import string
from collections.abc import Mapping, Sequence
from pathlib import Path

from rllm_core.errors import ConfigError

__all__ = ["render"]

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".template"


def render(folders: Sequence[str], target: Path, words: Mapping[str, str]) -> None:
    """Fill in the templates of these folders under a new directory.

    Raises ConfigError where the target is there already: nothing of a user's is overwritten.
    """
    if target.exists():
        raise ConfigError(
            f"{target} is there already", remedy="choose another place: --directory PATH"
        )
    sources = [
        (place, file)
        for place in (TEMPLATES / folder for folder in folders)
        for file in sorted(place.rglob(f"*{SUFFIX}"))
    ]
    texts = {
        _destination(file.relative_to(place), words): string.Template(
            file.read_text("utf-8")
        ).substitute(words)
        for place, file in sources
    }
    try:
        for relative, text in texts.items():
            path = target / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error}") from error


def _destination(template: Path, words: Mapping[str, str]) -> Path:
    parts = [words["module"] if part == "MODULE" else part for part in template.parts]
    return Path(*parts).with_suffix("")

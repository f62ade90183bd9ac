"""Scaffolds: a new plugin's package and a new user's project, written from templates.

The templates lie beside this module as files of the very layout that they become; `render` fills
in their `$words`. What is written works at once and passes its own tests: it is a start to change,
not a form to fill in.
"""

from rllm_core.scaffold.plugin import SCAFFOLDED, new_plugin
from rllm_core.scaffold.project import PROJECTS, new_project

__all__ = ["PROJECTS", "SCAFFOLDED", "new_plugin", "new_project"]

"""Imports point one way: a part of the core imports parts of lower layers only.

Imports inside functions count; those under TYPE_CHECKING do not, since nothing is imported then.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

# From the bottom. Parts of one layer do not import each other. Modules of a single file that are
# not named here lie at the very bottom, and may import each other.
LAYERS = (
    {"plugins"},
    {"config", "scaffold"},
    {"upstream", "store"},
    {"gateway", "sandbox", "harness", "scoring", "providers"},
    {"benchmark", "algorithms", "backend"},
    {"resolve"},
    {"engine"},
    {"training"},
    {"cli"},
)
HEIGHT = {part: height for height, layer in enumerate(LAYERS, start=1) for part in layer}
TOP = {"testing"}  # the kit for plugin authors: imports any part but cli, and no part imports it


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the dotted name and line of every import that happens at run time."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from imported(ast.Module(body=[other], type_ignores=[]))
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            # `from rllm_core import engine` may name a part of the package
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        else:
            yield from imported(node)


def part_of(path: Path, root: Path) -> str:
    """Return the part of the core that a file belongs to, '' for the package's own __init__."""
    part = path.relative_to(root / "rllm_core").parts[0].removesuffix(".py")
    return "" if part == "__init__" else part


def allowed(importer: str, part: str, is_folder: bool) -> bool:
    """Tell whether one part may import another."""
    if importer == part:
        return True
    if part in TOP or (importer in TOP and part == "cli"):
        return False
    if is_folder and part not in HEIGHT:
        return False  # a new folder needs a place in LAYERS
    return importer in TOP or HEIGHT.get(part, 0) < HEIGHT.get(importer, 0.5)


def test_the_core_imports_lower_layers_only(root, sources):
    wrong = []
    for path in sources:
        if path.relative_to(root).parts[0] != "rllm_core":
            continue
        importer = part_of(path, root)
        for name, line in imported(ast.parse(path.read_text())):
            top, _, rest = name.partition(".")
            if top == "rllm" or (top.startswith("rllm_") and top != "rllm_core"):
                wrong.append(f"{path.relative_to(root)}:{line} imports {name}, outside the core")
            if top != "rllm_core":
                continue
            part = rest.split(".")[0]
            folder = (root / "rllm_core" / part).is_dir()
            is_part = folder or (root / "rllm_core" / f"{part}.py").is_file()
            if is_part and not allowed(importer, part, folder):
                wrong.append(f"{path.relative_to(root)}:{line}: {importer} imports {part}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_the_core_has_its_layer(root):
    folders = {path.parent.name for path in (root / "rllm_core").glob("*/__init__.py")}
    assert folders <= set(HEIGHT) | TOP


def test_a_plugin_imports_no_other_plugin(root, plugins, sources):
    wrong = []
    for plugin in plugins:
        for path in (path for path in sources if path.is_relative_to(plugin)):
            own = path.relative_to(plugin).parts[0]
            for name, line in imported(ast.parse(path.read_text())):
                top = name.partition(".")[0]
                if top.startswith("rllm_") and top not in ("rllm_core", own):
                    wrong.append(f"{path.relative_to(root)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)

"""Small modules and functions, a docstring in every package, and `__all__` that holds."""

import ast
import importlib
import importlib.util

LINES_OF_A_MODULE = 500
LINES_OF_A_FUNCTION = 60


def test_no_module_is_long(root, sources):
    lengths = {path: len(path.read_text().splitlines()) for path in sources}
    long = [
        f"{path.relative_to(root)}: {length} lines"
        for path, length in lengths.items()
        if length > LINES_OF_A_MODULE
    ]
    assert not long, "\n".join(long)


def test_no_function_is_long(root, sources):
    long = [
        f"{path.relative_to(root)}:{node.lineno} {node.name}: {length} lines"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > LINES_OF_A_FUNCTION
    ]
    assert not long, "\n".join(long)


def test_every_package_says_what_it_is(root, sources):
    packages = [path for path in sources if path.name == "__init__.py"]
    mute = [
        str(path.relative_to(root))
        for path in packages
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert packages
    assert not mute


def test_names_in_all_exist(root, plugins, sources):
    missing = []
    for path in sources:
        if "__all__" not in path.read_text():
            continue
        base = next((plugin for plugin in plugins if path.is_relative_to(plugin)), root)
        name = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
        if importlib.util.find_spec(name.split(".")[0]) is None:
            continue  # a plugin whose requirements clash lives in an environment of its own
        module = importlib.import_module(name)
        missing += [f"{name}.{each}" for each in module.__all__ if not hasattr(module, each)]
    assert not missing

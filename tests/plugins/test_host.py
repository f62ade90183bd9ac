"""The plugin host: laziness, isolation, collisions, and what each refusal says."""

import sys

import pytest

from rllm_core.errors import ConfigError
from rllm_core.plugins import Plugins
from rllm_core.plugins.describe import describe_plugin, readme_of
from rllm_core.plugins.index import Index
from rllm_core.plugins.survey import survey

from .conftest import GOOD

HOOK = """
from rllm_core import hookimpl
@hookimpl
def {name}({arguments}):
    return {answer}
"""


def host(site) -> Plugins:
    return Plugins(Index.scan(sys.path))


def refused(site, kind: str = "harness", name: str = "good") -> str:
    with pytest.raises(ConfigError) as caught:
        host(site).load(kind, name)
    return str(caught.value)


def test_the_built_ins_are_found_and_loaded() -> None:
    plugins = Plugins.installed()
    assert "grpo" in plugins.names("algorithm")
    assert plugins.load("algorithm", "grpo").__name__ == "GRPO"
    assert [str(e) for e in plugins.loaded()] == ["algorithm 'grpo' (rllm-core 0.1.0)"]


def test_the_index_imports_nothing(site) -> None:
    module = site.add("acme-good")
    assert "good" in host(site).names("harness")
    assert module not in sys.modules
    assert host(site).load("harness", "good").__name__ == "Good"
    assert module in sys.modules


def test_names_are_compared_in_one_form(site) -> None:
    site.add("acme-good", name="My_Agent")
    assert host(site).load("harness", "my-agent") is host(site).load("harness", "MY_AGENT")


def test_a_module_may_serve_several_names(site) -> None:
    body = """
    from rllm_core import hookimpl
    from rllm_core.harness import Harness
    CLASSES = {name: type(name.title(), (Harness,), {}) for name in ("one", "two")}
    @hookimpl
    def rllm_harness(name):
        return CLASSES[name]
    """
    points = "[rllm.harnesses]\none = acme_many\ntwo = acme_many\n"
    site.add("acme-many", body, points=points)
    assert host(site).load("harness", "two").__name__ == "Two"


def test_an_unknown_name_offers_the_nearest_and_the_install_line(site) -> None:
    site.add("acme-good", name="claude-code")
    message = refused(site, name="claud-code")
    assert "unknown harness 'claud-code'" in message
    assert "did you mean 'claude-code'?" in message
    assert "pip install rllm-harness-claud-code" in message


BROKEN = {
    "raises": ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    "exits": ("import sys; sys.exit(3)", "it calls sys.exit(3) when it is imported"),
    "needs": ("import a_library_that_is_not_there", "pip install a-library-that-is-not-there"),
    "syntax": ("def f(:", "SyntaxError"),
    "misspelt": (HOOK.format(name="rllm_harnes", arguments="", answer="None"), "rllm_harnes"),
    "hookless": ("", "no @hookimpl named rllm_harness"),
    "argument": (HOOK.format(name="rllm_harness", arguments="nam", answer="None"), "nam"),
    "none": (HOOK.format(name="rllm_harness", arguments="", answer="None"), "returned None"),
    "no class": (
        HOOK.format(name="rllm_harness", arguments="", answer="3"),
        "returned 3, not a class",
    ),
    "foreign": (
        HOOK.format(name="rllm_harness", arguments="", answer="dict"),
        "does not extend rllm_core.harness.Harness",
    ),
    "untyped": (GOOD.replace("    @frozen\n", ""), "its Options is not an attrs class"),
    "unresolved": (GOOD.replace("turns: int", "turns: 'Unknown'"), "NameError"),
    "newer": (GOOD + "\nRLLM_API = '0.9'\n", "built for plugin API 0.9"),
    "other major": (GOOD + "\nRLLM_API = (7, 0)\n", "built for plugin API 7.0"),
    "odd API": (GOOD + "\nRLLM_API = 'new'\n", "ValueError"),
}


@pytest.mark.parametrize(("body", "reason"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_plugin_breaks_only_itself(site, body: str, reason: str) -> None:
    site.add("acme-broken", body, name="bad", version="2.5")
    site.add("acme-good")
    message = refused(site, name="bad")
    assert reason in message
    assert "acme-broken 2.5" in message
    assert host(site).load("harness", "good").__name__ == "Good"
    states = {s.name: s for s in survey(host(site), "harness", check=True)}
    assert states["bad"].state == "broken"
    assert reason in states["bad"].reason
    assert states["good"].state == "ok"


def test_what_a_plugin_prints_at_import_stays_out_of_our_output(site, capsys) -> None:
    site.add("acme-loud", "print('HELLO')\n" + GOOD)
    plugins = host(site)
    (state,) = [s for s in survey(plugins, "harness", check=True) if s.name == "good"]
    assert capsys.readouterr().out == ""
    assert (state.state, state.reason) == ("ok", r"it prints while it is loaded: 'HELLO\n'")


def test_two_of_one_name_are_an_error_that_names_both(site) -> None:
    site.add("acme-one")
    site.add(
        "acme-two", GOOD.replace("class Good", "class Other").replace("return Good", "return Other")
    )
    message = refused(site)
    assert "offered by" in message
    assert "acme-one 1.0" in message
    assert "'acme-two/good'" in message
    assert host(site).load("harness", "acme-two/good").__name__ == "Other"
    assert {s.state for s in survey(host(site), "harness") if s.name == "good"} == {"ambiguous"}
    assert "unknown harness 'acme-three/good'" in refused(site, name="acme-three/good")


def test_stale_metadata_of_one_package_counts_once(site, monkeypatch) -> None:
    site.add("acme-good", version="2.0")
    site.add("acme-good", version="1.0", at="old")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site.path / "old")])
    assert host(site).entry("harness", "good").version == "2.0"


@pytest.mark.parametrize("points", ["[rllm.harnesses]\nnonsense\n", "[rllm.harnesses]\ngood = \n"])
def test_bad_metadata_hides_nobody_else(site, points: str) -> None:
    site.add("acme-bad", points=points)
    site.add("acme-good", name="fine")
    plugins = host(site)
    assert plugins.load("harness", "fine").__name__ == "Good"
    assert any(s.state == "broken" for s in survey(plugins, check=True))


def test_a_package_without_a_name_is_still_listed(site) -> None:
    site.add("acme-good", metadata="")
    states = [s for s in survey(host(site), "harness") if s.name == "good"]
    assert [(s.package, s.state) for s in states] == [("(unnamed package)", "ok")]


def test_a_package_whose_module_is_gone_is_broken_without_a_check(site) -> None:
    module = site.add("acme-good")
    (site.path / f"{module}.py").unlink()
    state = next(s for s in survey(host(site)) if s.name == "good")
    assert state.state == "broken"
    assert "pip install -U acme-good" in state.reason


def test_a_description_tells_options_and_capabilities(site) -> None:
    site.add("acme-good")
    told = describe_plugin(host(site), "good")
    assert (told.kind, told.package, told.summary) == ("harness", "acme-good", "One.")
    assert told.doc == "A harness for tests."
    option = told.options[0]
    assert (option.name, option.type, option.default, option.doc) == (
        "turns",
        "a whole number",
        3,
        "how many turns",
    )
    assert told.capabilities["tools"] is True
    assert told.source.endswith("acme_good.py")


def test_a_description_tells_where_more_is_said(site) -> None:
    site.add(
        "acme-good",
        metadata="""Metadata-Version: 2.1
Name: acme-good
Version: 1.0
Project-URL: Source, https://example.org/source
Project-URL: Documentation, https://example.org/docs
Requires-Dist: attrs>=1

# Good

It answers.
""",
    )
    told = describe_plugin(host(site), "good")
    assert told.documentation == "https://example.org/docs"
    assert (told.requires, told.readme) == (("attrs>=1",), True)
    assert readme_of(host(site), "harness/good") == "# Good\n\nIt answers."
    site.add("acme-mute", name="mute")
    with pytest.raises(ConfigError, match=r"acme-mute 1\.0 carries no description"):
        readme_of(host(site), "mute")

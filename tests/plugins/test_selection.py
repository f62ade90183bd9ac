"""Disabling plugins: by whom, by which names, and what is refused."""

import pytest

from rllm_core.config import RunConfig, installed_plugins, load, rules_of, to_toml
from rllm_core.errors import ConfigError
from rllm_core.plugins import Plugins, Rule
from rllm_core.plugins.survey import survey
from rllm_core.resolve import check

from .conftest import GOOD
from .test_host import host


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RLLM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RLLM_PLUGINS", raising=False)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def without(site, *patterns: str) -> Plugins:
    return host(site).without(Rule(each, f"-p no:{each}", typed=True) for each in patterns)


@pytest.mark.parametrize("pattern", ["good", "harness/good", "acme-good", "acme-good/good", "GOOD"])
def test_every_way_to_name_a_plugin(site, pattern: str) -> None:
    site.add("acme-good")
    plugins = without(site, pattern)
    assert "good" not in plugins.names("harness")
    with pytest.raises(ConfigError, match=rf"harness 'good' is disabled \(-p no:{pattern}\)"):
        plugins.load("harness", "good")
    state = next(s for s in survey(plugins) if s.name == "good")
    assert (state.state, state.reason) == ("disabled", f"-p no:{pattern}")


def test_one_kind_of_a_name(site) -> None:
    site.add(
        "acme-good", points="[rllm.harnesses]\ngood=acme_good\n[rllm.trackers]\ngood=acme_good"
    )
    plugins = without(site, "tracker/good")
    assert "good" in plugins.names("harness")
    assert "good" not in plugins.names("tracker")


def test_disabling_one_rival_settles_whose_the_name_is(site) -> None:
    site.add("acme-one")
    site.add(
        "acme-two", GOOD.replace("class Good", "class Good2").replace("return Good", "return Good2")
    )
    assert without(site, "acme-one/good").load("harness", "good").__name__ == "Good2"
    states = {s.package: s.state for s in survey(without(site, "acme-one"), "harness")}
    assert (states["acme-one"], states["acme-two"]) == ("disabled", "ok")


@pytest.mark.parametrize("pattern", ["react", "harness/react", "rllm-core", "algorithm/grpo"])
def test_what_is_essential_stays(site, pattern: str) -> None:
    with pytest.raises(ConfigError, match="part of rllm-core and cannot be disabled"):
        without(site, pattern)


def test_a_rival_of_a_built_in_is_named_with_its_package(site) -> None:
    site.add("acme-react", name="react")
    with pytest.raises(ConfigError, match="say which other one: acme-react/react"):
        without(site, "react")
    assert (
        without(site, "acme-react/react")
        .load("harness", "react")
        .__module__.startswith("rllm_core")
    )


def test_a_typed_name_must_exist(site) -> None:
    site.add("acme-good")
    with pytest.raises(ConfigError, match="no plugin or package 'goood' is installed") as caught:
        without(site, "goood")
    assert "did you mean 'good'?" in str(caught.value)


def test_the_allow_list(site, monkeypatch) -> None:
    site.add("acme-good")
    site.add("acme-other", name="other")
    monkeypatch.setenv("RLLM_PLUGINS", "acme-good, harness/absent")
    plugins = Plugins.installed()
    assert "react" in plugins.names("harness")
    assert "good" in plugins.names("harness")
    with pytest.raises(ConfigError, match="RLLM_PLUGINS does not list it"):
        plugins.load("harness", "other")
    assert [r.pattern for r in plugins.selection.unmatched(plugins.index)] == ["harness/absent"]
    monkeypatch.setenv("RLLM_PLUGINS", "")
    assert {
        e.package for e in Plugins.installed().entries() if not Plugins.installed().why_disabled(e)
    } == {"rllm-core"}


def test_standing_preferences(site, home) -> None:
    site.add("acme-good")
    (home / "config.toml").write_text('[plugins]\ndisable = ["acme-good", "not-here"]\n')
    with pytest.raises(ConfigError, match=r"disabled \(.*config.toml\)"):
        installed_plugins().load("harness", "good")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[plugin]\n", r"plugin: unknown table .*config.toml:1\)\ndid you mean 'plugins'"),
        ("[plugins]\ndisabled = []\n", "did you mean 'disable'"),
        ("[plugins]\ndisable = 'x'\n", "expected a list of text, not 'x'"),
        ("[plugins", "is not valid TOML"),
        ('[plugins]\ndisable = ["react"]\n', "cannot be disabled"),
    ],
)
def test_bad_preferences_are_told(home, text: str, message: str) -> None:
    (home / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        installed_plugins()


def config(text: str) -> RunConfig:
    return load(text='benchmark = "arithmetic"\nmodels.policy = "tiny"\n' + text, environ={})


def test_a_run_file_disables(site) -> None:
    site.add("acme-good")
    given = config('harness = "good"\n[plugins]\ndisable = ["acme-good", "not-here"]\n')
    assert load(text=to_toml(given), environ={}) == given
    with pytest.raises(ConfigError, match=r"harness 'good' is disabled \(plugins.disable, the run"):
        check(given, host(site))
    assert rules_of(config("")) == ()

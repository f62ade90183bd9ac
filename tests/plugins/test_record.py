"""The exact plugin set: what is recorded of it, and what counts as a change."""

import sys

from rllm_core.plugins import Plugins
from rllm_core.plugins.index import Index
from rllm_core.plugins.record import changes, plugin_record, read_record, write_record


def record(site) -> dict:
    plugins = Plugins(Index.scan(sys.path))
    return plugin_record([plugins.entry("harness", "good"), plugins.entry("algorithm", "grpo")])


def test_what_is_recorded(site, tmp_path) -> None:
    site.add("acme-good", version="2.5")
    found = record(site)
    assert {p["name"]: (p["package"], p["module"]) for p in found["plugins"]} == {
        "good": ("acme-good", "acme_good"),
        "grpo": ("rllm-core", "rllm_core.algorithms.grpo"),
    }
    assert found["packages"]["acme-good"]["version"] == "2.5"
    assert set(found["packages"]) == {"rllm-core", "acme-good"}
    hashes = [p["sha256"] for p in (*found["plugins"], *found["packages"].values())]
    assert all(len(each) == 64 for each in hashes)
    assert "acme_good" not in sys.modules
    write_record(tmp_path, found)
    assert read_record(tmp_path) == found


def test_a_changed_file_is_another_plugin(site) -> None:
    module = site.add("acme-good")
    before = record(site)
    assert changes(before, record(site)) == []
    (site.path / f"{module}.py").write_text("# another\n")
    assert changes(before, record(site)) == ["the files of acme-good 1.0 have changed"]


def test_another_version_and_another_package(site, tmp_path) -> None:
    site.add("acme-good")
    before = record(site)
    before["packages"]["acme-good"]["version"] = "0.9"
    assert changes(before, record(site)) == ["acme-good 0.9 is now 1.0"]
    del before["packages"]["acme-good"]
    assert changes(before, record(site)) == ["acme-good was not used before"]
    assert changes(read_record(tmp_path), record(site)) == []


def test_every_file_of_a_package_counts(site) -> None:
    folder = site.path / "acme_deep"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "data.txt").write_text("one")
    site.add("acme-good", points="[rllm.harnesses]\ngood = acme_deep\n")
    before = record(site)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_text("")
    assert changes(before, record(site)) == []
    (folder / "inner" / "data.txt").write_text("two")
    assert changes(before, record(site)) == ["the files of acme-good 1.0 have changed"]

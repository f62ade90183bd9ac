"""Each tutorial, followed to the letter: scaffold, wheel, conformance, a real run, uninstall."""

import json
from pathlib import Path

import pytest

from rllm_core.scaffold import SCAFFOLDED

DOCS = Path(__file__).resolve().parents[2] / "docs/tutorials"
PAGES = sorted(DOCS.glob("*.md"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_every_kind_has_its_tutorial():
    assert {page.stem for page in PAGES} == {*SCAFFOLDED, "project"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_followed(page, reader, environment):
    reader.follow(page)
    _, listed = environment.run(["rllm", "runs", "list", "--json"])
    newest = json.loads(listed)[0]["id"]
    _, shown = environment.run(["rllm", "runs", "show", newest, "--json"])
    assert any(reward > 0 for reward in json.loads(shown)["rewards"])
    _, plugins = environment.run(["rllm", "plugins", "--json"])
    assert reader.folder.name not in {each["package"] for each in json.loads(plugins)}

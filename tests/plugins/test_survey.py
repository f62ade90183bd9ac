"""The states of installed plugins: what metadata alone tells, and what importing adds."""

import sys

import pytest

from rllm_core.cli.plugins import STATES as OFFERED
from rllm_core.plugins.requirements import Installed
from rllm_core.plugins.survey import STATES, Status, survey

from .conftest import GOOD
from .test_host import host

HEAD = "Metadata-Version: 2.1\nName: {}\nVersion: 1.0\n"


def state(site, name: str = "good", **more) -> Status:
    return next(s for s in survey(host(site), **more) if s.name == name)


def add(site, *requirements: str, body: str = GOOD, package: str = "acme-good") -> None:
    lines = "".join(f"Requires-Dist: {each}\n" for each in requirements)
    site.add(package, body, metadata=HEAD.format(package) + lines)


def test_the_states_that_can_be_asked_for() -> None:
    assert OFFERED == STATES


@pytest.mark.parametrize(
    ("requirement", "wrong"),
    [
        ("a-library>=2", "a-library>=2, which is not installed"),
        ("attrs>=999", "attrs>=999, and "),
        ("library-1>=2", "library-1>=2, and 1.5 is installed"),
        ("library_1[fast]", "quick>=3, which is not installed"),
    ],
)
def test_what_is_required_and_not_there(site, requirement: str, wrong: str) -> None:
    site.add(
        "library-1",
        "",
        points="\n",
        version="1.5",
        metadata=HEAD.format("library-1")
        + "Requires-Dist: quick>=3 ; extra == 'fast'\nRequires-Dist: slow ; extra == 'slow'\n",
    )
    add(site, requirement)
    found = state(site)
    assert found.state == "needs"
    assert wrong in found.reason
    assert found.mend.startswith(("pip install ", "uv pip install "))
    assert found.mend in found.reason
    assert "slow" not in found.reason
    assert "acme_good" not in sys.modules


@pytest.mark.parametrize(
    "requirement",
    ["attrs>=20", "Attrs", "absent; python_version < '3'", "absent; extra == 'more'", "pytest>1a1"],
)
def test_what_is_met_or_does_not_apply(site, requirement: str) -> None:
    add(site, requirement)
    assert state(site) == Status("harness", "good", "acme-good", "1.0")


def test_a_requirement_that_cannot_be_read(site) -> None:
    add(site, "what >>> ever")
    assert state(site).state == "broken"
    assert "'what >>> ever' is no requirement" in state(site).reason


def test_names_are_compared_as_installers_do(site) -> None:
    site.add("Some.Library", "", points="\n", metadata=HEAD.format("Some.Library"))
    assert Installed.on([str(site.path)]).version("some-library") == "1.0"


def test_what_is_needed_is_the_reason_for_a_failing_import(site) -> None:
    add(site, "a-library", body="import a_library\n" + GOOD)
    found = state(site, check=True)
    assert found.state == "needs"
    assert "install a-library" in found.mend
    assert "ModuleNotFoundError" in found.reason


FAULTS = {
    "abstract": (
        "import abc\n" + GOOD + "Good.run = abc.abstractmethod(Good.run)\n"
        "class Good(Good, metaclass=abc.ABCMeta):\n    run = abc.abstractmethod(lambda: 0)\n",
        "is abstract: it lacks run",
    ),
    "capabilities": (
        GOOD.replace("HarnessCapabilities(tools=True)", "{'tools': True}"),
        "its capabilities are {'tools': True}, not HarnessCapabilities",
    ),
    "mute option": (
        GOOD.replace('metadata={"doc": "how many turns"}', ""),
        "its option 'turns' says nothing",
    ),
    "odd defaults": (
        GOOD.replace("default=3", "default=3, validator=lambda *_: 1 / 0 if 0 else int('x')"),
        "its options refuse their own defaults",
    ),
}


@pytest.mark.parametrize(("body", "reason"), FAULTS.values(), ids=list(FAULTS))
def test_a_check_looks_at_what_no_single_run_needs(site, body: str, reason: str) -> None:
    site.add("acme-good", body)
    assert state(site).state == "ok"
    found = state(site, check=True)
    assert found.state == "broken"
    assert reason in found.reason


def test_importing_is_timed(site) -> None:
    site.add("acme-good", "import time; time.sleep(0.05)\n" + GOOD)
    assert state(site).import_ms is None
    assert (state(site, check=True).import_ms or 0) > 45

"""A run says which plugins it used, to the byte, and whether they changed before it went on."""

import json


def test_a_run_records_its_plugins_and_notices_a_change(rllm, serve, read, tmp_path, monkeypatch):
    site = tmp_path / "packages"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    module = site / "acme_note.py"
    module.write_text(
        "from rllm_core import hookimpl\nfrom rllm_core.tracking import Tracker\n"
        "class Note(Tracker):\n    pass\n@hookimpl\ndef rllm_tracker():\n    return Note\n"
    )
    info = site / "acme_note-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-note\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[rllm.trackers]\nnote = acme_note\n")
    server = serve(["1"])
    run = tmp_path / "run"
    words = ("arithmetic", *server.flags, "--max", 2, "trackers.use=note")
    assert rllm("eval", *words, "--run-dir", run).code == 0
    record = json.loads((run / "plugins.json").read_text())
    names = {f"{p['kind']}/{p['name']}" for p in record["plugins"]}
    assert names == {"harness/react", "benchmark/arithmetic", "tracker/note"}
    assert record["packages"]["acme-note"]["version"] == "1.5"
    assert all(p["sha256"] for p in record["plugins"])

    assert rllm("eval", "--resume", run).code == 0
    assert "changed_package" not in {event.kind for event in read(run).events()}
    module.write_text(module.read_text() + "# mended\n")
    ended = rllm("eval", "--resume", run)
    assert ended.code == 0, ended.err
    assert "since this run began: the files of acme-note 1.5 have changed" in ended.out
    assert "1 changed package" in ended.out

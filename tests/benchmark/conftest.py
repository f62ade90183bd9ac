"""A Hugging Face hub of one data set: enough of its HTTP API for `datasets`."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


def entry(path: str, data: bytes) -> dict:
    return {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}


def listing(folder: str, files: dict[str, bytes]) -> list[dict]:
    """What lies directly in a folder: files, and the folders of deeper ones."""
    prefix = f"{folder}/" if folder else ""
    below = [p.removeprefix(prefix) for p in files if p.startswith(prefix)]
    folders = dict.fromkeys(p.partition("/")[0] for p in below if "/" in p)
    return [
        *({"type": "directory", "path": prefix + f, "oid": "0" * 40} for f in folders),
        *(entry(prefix + p, files[prefix + p]) for p in below if "/" not in p),
    ]


class FakeHub(ThreadingHTTPServer):
    """`url` is what HF_ENDPOINT takes; `asked` are the paths that were asked for."""

    def __init__(self, repo: str, revision: str, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repo, self.revision, self.files = repo, revision, files
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def document(self, path: str) -> bytes | None:
        if found := re.fullmatch(rf"/datasets/{self.repo}/resolve/{self.revision}/(.+)", path):
            return self.files.get(found[1])
        api = f"/api/datasets/{self.repo}"
        if found := re.fullmatch(rf"{api}/tree/{self.revision}/?(.*)", path):
            return json.dumps(listing(found[1], self.files)).encode()
        if path in (api, f"{api}/revision/{self.revision}"):
            files = [{"rfilename": name} for name in self.files]
            info = {"id": self.repo, "sha": self.revision, "siblings": files, "tags": []}
            return json.dumps({**info, "private": False, "gated": False}).encode()
        return None


class Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_GET(self):
        self.server.asked.append(self.path)
        data = self.server.document(self.path.partition("?")[0])
        self.send_response(404 if data is None else 200)
        if data is None:
            self.send_header("x-error-code", "EntryNotFound")
        self.send_header("content-length", str(len(data or b"")))
        self.send_header("x-repo-commit", self.server.revision)
        self.send_header("etag", f'"{hashlib.sha1(data or b"").hexdigest()}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data or b"")

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def hub_of():
    """`hub_of(repo, revision, files)` starts a hub that holds these files."""
    running = []

    def start(repo: str, revision: str, files: dict[str, bytes]) -> FakeHub:
        hub = FakeHub(repo, revision, files)
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        running.append(hub)
        return hub

    yield start
    for hub in running:
        hub.shutdown()
        hub.server_close()

"""A page of another origin, opened by a reader who is signed in: it can read nothing of ours and frame nothing."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.page.steps import expect_state, start

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

MINT = """async () => {
  const ask = (path, more) => fetch(path, more).then((answer) => answer.json());
  const { csrf } = await ask("/api/session");
  const [run] = (await ask("/api/exports")).items;
  return (await ask(`/api/exports/${run.token}/file`, { method: "POST", headers: { "X-CSRF-Token": csrf } })).url;
}"""
READ = """(urls) => Promise.all(urls.map((url) =>
  fetch(url, { mode: "no-cors", credentials: "include" }).then(() => "taken", () => "blocked")))"""
EMBED = """(tags) => Promise.all(tags.map(([name, url]) => new Promise((done) => {
  const tag = document.createElement(name);
  tag.onload = () => done("taken");
  tag.onerror = () => done("blocked");
  tag.src = url;
  document.body.append(tag);
})))"""


@pytest.fixture
def elsewhere():
    """Another origin of the same site: browsers send it no answer of ours, although they send us our cookie."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            kinds = {"/": "text/html", "/plain": "text/plain", "/plain.js": "text/javascript"}
            self.send_response(200)
            self.send_header("Content-Type", kinds.get(self.path, "text/plain"))
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title><body>" if self.path == "/" else b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_another_origin_reads_nothing_and_frames_nothing(reader, elsewhere):
    own = reader.open()
    expect_state(start(own, "Orders"), "ready")
    url = reader.server.url
    ours = [url + place for place in ("/api/exports", "/api/session", "/", "/page/page.js", own.evaluate(MINT))]
    assert ["taken"] * len(ours) == own.evaluate(READ, ours)

    other = reader.context.new_page()
    other.goto(elsewhere)
    third = elsewhere.replace("127.0.0.1", "localhost")

    assert ["taken"] == other.evaluate(READ, [f"{third}/plain"]), "this browser blocks everything"
    assert ["blocked"] * len(ours) == other.evaluate(READ, ours)
    assert ["taken"] == other.evaluate(EMBED, [["script", f"{third}/plain.js"]])
    embedded = [["script", f"{url}/page/page.js"], ["script", ours[-1]], ["img", ours[-1]], ["img", f"{url}/"]]
    assert ["blocked"] * len(embedded) == other.evaluate(EMBED, embedded)
    other.evaluate(EMBED, [["iframe", f"{url}/"], ["iframe", f"{elsewhere}/plain"]])
    framed = [frame.url for frame in other.frames[1:]]
    assert ["chrome-error://chromewebdata/", f"{elsewhere}/plain"] == framed

"""A file over HTTP: what its headers promise, which part of it is sent, and why it is gone when it is gone."""

from __future__ import annotations

import base64
import hashlib
import os
import resource

import pytest

from haulage.core.clock import http_date
from haulage.core.errors import Refused
from haulage.exports.life import ExportLife
from haulage.web.disposition import content_disposition, plain_name
from haulage.web.ranges import NotSatisfiable, Piece, asked_piece

pytestmark = pytest.mark.slow
CONTENT = b"id,total\r\n" + b"".join(b"%d,%d.50\r\n" % (n, n) for n in range(1000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ETAG = f'"{SHA256}"'


@pytest.fixture
def fetch(house):
    """Fetches one ready file with whatever headers a client sends."""
    client = house.client("key-amina")
    run = house.ready(client, CONTENT)
    link = house.link(client, run)

    def get(method="GET", **headers):
        return client.request(method, link, headers={name.replace("_", "-"): each for name, each in headers.items()})

    get.client, get.run, get.link, get.house = client, run, link, house
    return get


@pytest.mark.quick
def test_a_whole_file_with_every_header(fetch):
    answer = fetch()

    assert 200 == answer.status_code
    assert answer.content == CONTENT
    expected = {
        "content-type": "text/csv; charset=utf-8",
        "content-length": str(len(CONTENT)),
        "content-disposition": "attachment; filename=\"orders.csv\"; filename*=UTF-8''orders.csv",
        "etag": ETAG,
        "last-modified": http_date(fetch.house.clock),
        "accept-ranges": "bytes",
        "repr-digest": f"sha-256=:{base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()}:",
        "cache-control": "private, no-store",
        "content-security-policy": "sandbox; default-src 'none'",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "vary": "Authorization, Cookie, Origin, Sec-Fetch-Site",
    }
    assert expected == dict(answer.headers)
    assert fetch.run["file"]["sha256"] == SHA256


def test_head_answers_the_same_headers(fetch):
    head = fetch("HEAD")

    assert (200, b"") == (head.status_code, head.content)
    assert fetch().headers == head.headers
    assert fetch().headers == fetch("HEAD", Range="bytes=0-1").headers
    assert 304 == fetch("HEAD", If_None_Match=ETAG).status_code
    assert 412 == fetch("HEAD", If_Match='"other"').status_code


def test_a_link_works_for_a_while_and_then_another_can_be_had(fetch, house):
    house.passes(house.doors.file_token_seconds - 0.001)
    before = fetch()
    house.passes(0.001)

    expired = fetch()
    again = fetch.client.get(house.link(fetch.client, fetch.run))

    assert 200 == before.status_code
    assert (410, "link_expired") == (expired.status_code, expired.json()["code"])
    assert CONTENT == again.content


def test_a_link_says_until_when(fetch, house):
    minted = fetch.client.post(f"/api/exports/{fetch.run['token']}/file")
    house.passes(house.limits.expiry_seconds - 1)
    last = fetch.client.post(f"/api/exports/{fetch.run['token']}/file")

    assert 201 == minted.status_code
    assert minted.json()["url"] == minted.headers["location"]
    assert minted.json()["expires_at"] < last.json()["expires_at"] == fetch.run["expires_at"]


def test_a_file_is_gone_at_the_instant_before_any_sweep(fetch, house):
    token = fetch.run["token"]
    house.passes(house.limits.expiry_seconds - 1)
    link = house.link(fetch.client, fetch.run)
    house.passes(1)

    at_the_file, old_link, minted = fetch.client.get(link), fetch(), fetch.client.post(f"/api/exports/{token}/file")

    answers = [
        (each.status_code, each.json()["code"], each.json()["state"]) for each in (at_the_file, old_link, minted)
    ]
    assert [(410, "expired", "expired")] * 3 == answers


@pytest.mark.parametrize(
    ("ends", "status", "code", "state"),
    [
        ("queued", 409, "not_ready", "queued"),
        ("running", 409, "not_ready", "running"),
        ("failed", 410, "failed", "failed"),
        ("cancelled", 410, "cancelled", "cancelled"),
        ("expired", 410, "expired", "expired"),
        ("mislaid", 410, "artifact_lost", "failed"),
    ],
)
def test_what_has_no_file_says_why(house, ends, status, code, state):
    client = house.client("key-amina")
    token = client.post("/api/exports", json={"dataset": "orders"}).json()["token"]
    if ends == "cancelled":
        client.delete(f"/api/exports/{token}")
    elif ends != "queued":
        held, run = house.claim()
        if ends == "failed":
            house.fail(held)
        elif ends in ("expired", "mislaid"):
            house.finish(held, run)
            move, values = ExportLife.expire, {}
            if ends == "mislaid":
                move, values = ExportLife.mislay, {"failure_code": "artifact_lost"}
            house.store.exports.move(run.id, move, values)

    refused = client.post(f"/api/exports/{token}/file")

    assert (status, code, state) == (refused.status_code, refused.json()["code"], refused.json()["state"])


@pytest.mark.parametrize("damage", ["removed", "shorter", "longer", "other bytes", "a folder", "a link"])
def test_a_damaged_file_is_refused_and_the_run_corrected(fetch, house, damage):
    path = house.file_of(fetch.run)
    kept = path.read_bytes()
    path.unlink()
    if damage == "shorter":
        path.write_bytes(kept[:-1])
    elif damage == "longer":
        path.write_bytes(kept + b"x")
    elif damage == "other bytes":
        path.write_bytes(kept[:-1] + b"?")
    elif damage == "a folder":
        path.mkdir()
    elif damage == "a link":
        (house.folder / "elsewhere").write_bytes(kept)
        path.symlink_to(house.folder / "elsewhere")

    first, second = fetch(), fetch()

    shown = fetch.client.get(f"/api/exports/{fetch.run['token']}").json()
    assert [(410, "artifact_lost")] * 2 == [(each.status_code, each.json()["code"]) for each in (first, second)]
    assert ("failed", "artifact_lost") == (shown["state"], shown["failure"]["code"])
    assert 1 == sum(type(event).__name__ == "ArtifactLost" for event in house.events)


def test_a_folder_that_is_not_there_has_lost_no_file(fetch, house):
    """A disk that was not mounted: when it is back its files are too."""
    root = house.artifacts.root
    root.rename(root.with_name("elsewhere"))
    away = fetch()
    root.mkdir()  # an empty mount point
    empty = fetch()
    root.rmdir()
    root.with_name("elsewhere").rename(root)

    assert [(503, "files_unavailable")] * 2 == [(each.status_code, each.json()["code"]) for each in (away, empty)]
    assert 200 == fetch().status_code


def test_a_process_that_can_open_no_more_files_does_not_take_one_for_lost(fetch, house):
    """Too many open files say nothing of the bytes; a run that is called failed for that would lose them."""
    exports, amina, run_id = house.exports(), house.people.find("key-amina"), fetch.run["id"]
    exports.may_fetch(amina, run_id)  # The store has its connection.
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        with pytest.raises(Refused) as refused:
            exports.open_file(amina, run_id)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert ("files_unavailable", 503) == (refused.value.code, refused.value.failure.status)
    assert [("files", "OSError: Too many open files")] == [
        (each.where, each.problem) for each in house.events if type(each).__name__ == "StoreFailed"
    ]
    assert (200, CONTENT) == (fetch().status_code, fetch().content)


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1), ("bytes=0-9", 0, 10), ("bytes=10-", 10, None), ("bytes=-7", -7, None),
        ("bytes=5-99999999", 5, None), ("bytes=-99999999", 0, None), ("Bytes=1-2", 1, 3), ("bytes= 1-2 ", 1, 3),
        ("bytes=0-", 0, None),
    ],
)  # fmt: skip
def test_one_range_is_answered_with_that_part(fetch, asked, start, end):
    part = CONTENT[start:end]
    first = CONTENT.index(part, max(0, start % len(CONTENT))) if start else 0

    answer = fetch(Range=asked)

    assert 206 == answer.status_code
    assert part == answer.content
    assert f"bytes {first}-{first + len(part) - 1}/{len(CONTENT)}" == answer.headers["content-range"]
    assert str(len(part)) == answer.headers["content-length"]
    assert ETAG == answer.headers["etag"]
    assert fetch().headers["repr-digest"] == answer.headers["repr-digest"]


@pytest.mark.parametrize(
    "asked",
    [
        "bytes=0-1,3-4", "bytes=5-2", "bytes=a-b", "bytes=-", "bytes=", "bytes", "items=0-1", "bytes=0-1;", "0-1", "",
        "bytes=1 - 2", "bytes=-1-2", "bytes=0x1-2", "bytes=" + "9" * 50 + "-", "bytes=\u0661-",
    ],
)  # fmt: skip
def test_a_range_that_is_malformed_or_one_of_several_is_ignored(fetch, asked):
    answer = fetch(Range=asked.encode())

    assert (200, CONTENT) == (answer.status_code, answer.content)
    assert "content-range" not in answer.headers


@pytest.mark.parametrize("asked", [f"bytes={len(CONTENT)}-", "bytes=999999-1000000", "bytes=-0"])
def test_a_range_behind_the_end_is_not_satisfiable(fetch, asked):
    answer = fetch(Range=asked)

    assert (416, "range_not_satisfiable") == (answer.status_code, answer.json()["code"])
    assert f"bytes */{len(CONTENT)}" == answer.headers["content-range"]


@pytest.mark.parametrize(
    ("condition", "status"),
    [(ETAG, 206), (f"W/{ETAG}", 200), ('"other"', 200), ("{date}", 200), ("", 200), (SHA256, 200), (f" {ETAG} ", 206)],
)
def test_if_range_takes_a_strong_etag_only(fetch, condition, status):
    answer = fetch(Range="bytes=0-4", If_Range=condition.format(date=fetch().headers["last-modified"]))

    assert status == answer.status_code
    assert (CONTENT[:5] if status == 206 else CONTENT) == answer.content


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If_None_Match": ETAG}, 304),
        ({"If_None_Match": f"W/{ETAG}"}, 304),
        ({"If_None_Match": "*"}, 304),
        ({"If_None_Match": f'"a", {ETAG}'}, 304),
        ({"If_None_Match": '"other"'}, 200),
        ({"If_None_Match": SHA256}, 200),
        ({"If_None_Match": ETAG, "Range": "bytes=0-1"}, 304),
        ({"If_None_Match": '"other"', "If_Modified_Since": "{now}"}, 200),
        ({"If_Modified_Since": "{now}"}, 304),
        ({"If_Modified_Since": "{before}"}, 200),
        ({"If_Modified_Since": "yesterday"}, 200),
        ({"If_Match": ETAG}, 200),
        ({"If_Match": "*"}, 200),
        ({"If_Match": f'"a", {ETAG}'}, 200),
        ({"If_Match": f"W/{ETAG}"}, 412),
        ({"If_Match": '"other"'}, 412),
        ({"If_Match": ""}, 412),
        ({"If_Match": '"other"', "If_None_Match": ETAG}, 412),
        ({"If_Match": ETAG, "If_None_Match": ETAG}, 304),
        ({"If_Match": ETAG, "If_Unmodified_Since": "{before}"}, 200),
        ({"If_Unmodified_Since": "{now}"}, 200),
        ({"If_Unmodified_Since": "{before}"}, 412),
        ({"If_Unmodified_Since": "99999999999"}, 200),
        ({"If_Match": ETAG, "Range": "bytes=0-1"}, 206),
    ],
)
def test_conditions_decide_in_the_order_of_the_standard(fetch, house, headers, status):
    dates = {"now": http_date(house.clock), "before": http_date(house.clock - 5000)}

    answer = fetch(**{name: each.format(**dates) for name, each in headers.items()})

    assert status == answer.status_code
    if status == 304:
        assert b"" == answer.content
        assert ETAG == answer.headers["etag"]
    if status == 412:
        assert "precondition_failed" == answer.json()["code"]


def test_an_empty_file_is_a_file(house):
    client = house.client("key-amina")
    link = house.link(client, house.ready(client, b""))

    whole, range_of_it = client.get(link), client.get(link, headers={"Range": "bytes=0-"})

    assert (200, b"", "0") == (whole.status_code, whole.content, whole.headers["content-length"])
    assert (416, "bytes */0") == (range_of_it.status_code, range_of_it.headers["content-range"])


def test_refusals_of_files_are_observed_without_tokens(fetch, house):
    house.people.change("amina", grants=frozenset())
    fetch()
    fetch.client.post(f"/api/exports/{fetch.run['token']}/file")

    refused = [event for event in house.events if type(event).__name__ == "RequestRefused"]
    assert [("not_found", "amina", f"file {fetch.run['id']}")] * 2 == [
        (event.code, event.account, event.what) for event in refused
    ]
    assert fetch.run["token"] not in str(house.events)
    assert fetch.link.rpartition("/")[2] not in str(house.events)


@pytest.mark.parametrize(
    ("name", "ascii_name", "plain"),
    [
        ("orders.csv", "orders.csv", "orders.csv"),
        ("報告.csv", "__.csv", "報告.csv"),
        ("Größe é.csv", "Gro_e e.csv", "Größe é.csv"),
        ("a/../../etc/passwd", "passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini", "boot.ini"),
        ("..", "export", "export"),
        (".", "export", "export"),
        ("", "export", "export"),
        (".bashrc", "bashrc", "bashrc"),
        ("a\r\nSet-Cookie: x=1.csv", "a  Set-Cookie_ x=1.csv", "a  Set-Cookie_ x=1.csv"),
        ("nul\0l.csv", "null.csv", "null.csv"),
        ('say "hi".csv', "say _hi_.csv", "say _hi_.csv"),
        ("a;b=c.csv", "a;b=c.csv", "a;b=c.csv"),
        ("100%41.csv", "100_41.csv", "100%41.csv"),
        ("%0d%0a.csv", "_0d_0a.csv", "%0d%0a.csv"),
        ("invoice\u202evsc.exe", "invoicevsc.exe", "invoicevsc.exe"),
        ("CON", "_CON", "_CON"),
        ("con.csv", "_con.csv", "_con.csv"),
        ("console.csv", "console.csv", "console.csv"),
        ("trailing. . ", "trailing", "trailing"),
        ("smile\U0001f600.csv", "smile_.csv", "smile\U0001f600.csv"),
        ("lone\ud800.csv", "lone_.csv", "lone_.csv"),
        ("a:b|c?d*e<f>.csv", "a_b_c_d_e_f_.csv", "a_b_c_d_e_f_.csv"),
    ],
)  # fmt: skip
def test_a_name_is_one_plain_file_in_one_header(fetch, house, name, ascii_name, plain):
    header = content_disposition(name)

    fallback, _, encoded = header.removeprefix('attachment; filename="').partition("\"; filename*=UTF-8''")
    assert plain == plain_name(name)
    assert ascii_name == fallback
    assert header.isascii()
    assert header.isprintable()
    assert not set(encoded) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$&+-.^_`|~%")


def test_a_long_name_keeps_its_suffix():
    assert plain_name("x" * 300 + ".csv.gz").endswith("x.csv.gz")
    assert len(plain_name("報" * 300 + ".csv").encode()) <= 180
    assert plain_name("報" * 300 + ".csv").endswith("報.csv")


def test_the_name_of_a_run_is_the_name_of_the_download(house):
    client = house.client("key-amina")
    link = house.link(client, house.ready(client, CONTENT, name="売上\r\n.csv.gz", media_type="application/gzip"))

    answer = client.get(link)

    assert (
        "attachment; filename=\"__  .csv.gz\"; filename*=UTF-8''%E5%A3%B2%E4%B8%8A%20%20.csv.gz"
        == answer.headers["content-disposition"]
    )
    assert "application/gzip" == answer.headers["content-type"]
    assert "content-encoding" not in answer.headers


def test_pieces_of_a_file_are_whole_numbers_of_bytes():
    assert asked_piece(None, 10) is None
    assert Piece(3, 10) == asked_piece("bytes=3-", 10)
    assert 7 == Piece(3, 10).length
    with pytest.raises(NotSatisfiable):
        asked_piece("bytes=0-", 0)

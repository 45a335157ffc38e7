"""What an external command says of its file is read with suspicion."""

from __future__ import annotations

import json

import pytest

from haulage.core.errors import BuildFailed
from haulage.exports.report import NOTICES, REPORT_BYTES, read_report


def test_a_report_says_what_a_file_is():
    full = read_report(b'{"complete": false, "rows": 7, "notices": [{"code": "a"}, {"code": "b_2", "count": 3}]}')
    short = read_report(b'{"complete": true}')
    unknown = read_report(b'{"complete": true, "rows": null, "notices": []}')

    assert (False, 7, ({"code": "a"}, {"code": "b_2", "count": 3})) == full
    assert (True, None, ()) == short == unknown


FAULTS = {
    "nothing": (b"", "it is no JSON in UTF-8"),
    "no JSON": (b"{complete: true}", "it is no JSON in UTF-8"),
    "two documents": (b'{"complete": true}{"complete": true}', "it is no JSON in UTF-8"),
    "another encoding": ('{"complete": true, "ü": 1}'.encode("latin-1"), "it is no JSON in UTF-8"),
    "too deep": (b"[" * 20_000, "it is no JSON in UTF-8"),
    "no number of JSON": (b'{"complete": true, "rows": NaN}', "it is no JSON in UTF-8"),
    "no object": (b'["complete"]', "it is no object"),
    "a member twice": (b'{"complete": false, "complete": true}', "a member stands twice in an object"),
    "another member": (b'{"complete": true, "path": "/srv/4711"}', "it has other members than complete, rows, notices"),
    "it does not say": (b'{"rows": 1}', "complete is neither true nor false"),
    "a text for a truth": (b'{"complete": "true"}', "complete is neither true nor false"),
    "a number for a truth": (b'{"complete": 1}', "complete is neither true nor false"),
    "no reason": (b'{"complete": false}', "complete is false, and no notice says why"),
    "an empty reason": (b'{"complete": false, "notices": []}', "complete is false, and no notice says why"),
    "rows below nothing": (b'{"complete": true, "rows": -1}', "rows is no whole number from 0 on"),
    "half a row": (b'{"complete": true, "rows": 1.5}', "rows is no whole number from 0 on"),
    "a truth for rows": (b'{"complete": true, "rows": true}', "rows is no whole number from 0 on"),
    "a text for rows": (b'{"complete": true, "rows": "7"}', "rows is no whole number from 0 on"),
    "rows that nobody holds": (b'{"complete": true, "rows": 1' + b"0" * 30 + b"}", "rows is no whole number from 0 on"),
    "digits without end": (b'{"complete": true, "rows": ' + b"9" * 5_000 + b"}", "it is no JSON in UTF-8"),
    "notices in an object": (b'{"complete": true, "notices": {"code": "a"}}', "notices is no list of at most 50"),
    "a notice without an object": (b'{"complete": true, "notices": ["a"]}', "a notice is no object"),
    "a notice with a text": (b'{"complete": true, "notices": [{"code": "a", "text": "/srv/4711"}]}',
                             "a notice has other members than code, count"),
    "a code with a path": (b'{"complete": true, "notices": [{"code": "/srv/4711"}]}', "the code of a notice is not of"),
    "a code with a line end": (b'{"complete": true, "notices": [{"code": "a\\n"}]}', "the code of a notice is not of"),
    "a count below nothing": (b'{"complete": true, "notices": [{"code": "a", "count": -1}]}', "count is no whole"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "said"), FAULTS.values(), ids=FAULTS)
def test_a_report_that_is_wrong_is_refused_as_a_whole(data, said):
    with pytest.raises(BuildFailed) as failed:
        read_report(data)

    assert "report_invalid" == failed.value.code
    assert failed.value.cause.startswith(said)
    assert "4711" not in failed.value.cause


def test_a_report_has_its_limits():
    notice = {"code": "a" * 63, "count": 2**53}
    most = json.dumps({"complete": True, "rows": 2**53, "notices": [notice] * NOTICES}).encode()
    assert NOTICES == len(read_report(most).notices)
    assert read_report(most + b" " * (REPORT_BYTES - len(most))).complete
    with pytest.raises(BuildFailed, match="did not say rightly"):
        read_report(most + b" " * (REPORT_BYTES - len(most) + 1))
    for more in ([notice] * (NOTICES + 1), [{"code": "a" * 64}], [{"code": "a", "count": 2**53 + 1}]):
        with pytest.raises(BuildFailed):
            read_report(json.dumps({"complete": True, "notices": more}).encode())

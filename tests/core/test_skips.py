"""Where everything has to run, a test that was skipped has failed; only what was never promised may be left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = {
    "fine": "def test(): pass",
    "called": "def test(): pytest.skip('no curl')",
    "marked": "@pytest.mark.skipif(True, reason='no gcc')\ndef test(): pass",
    "fixture": "@pytest.fixture\ndef server(): pytest.skip('no server')\ndef test(server): pass",
    "no_value": "@pytest.mark.parametrize('n', [])\ndef test(n): pass",
    "module": "def test(): pytest.importorskip('nowhere_at_all')",
    "file": "pytest.importorskip('nowhere_at_all')\ndef test(): pass",
    "promise": "def test(): raise NotPromised('this store has no clock')",
    "xfail": "@pytest.mark.xfail(strict=True)\ndef test(): assert False",
    "random": "def test(seed, times): assert False",
}


def outcomes(folder, everything):
    """What came of each kind, and what pytest printed."""
    for kind, text in KINDS.items():
        (folder / f"test_{kind}.py").write_text(f"import pytest\nfrom tests.promises import NotPromised\n\n{text}\n")
    options = ["-c", ROOT / "pyproject.toml", "--rootdir", folder, "-p", "tests.conftest", "-p", "no:cacheprovider"]
    options += ["--continue-on-collection-errors"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-q", "-rA", folder],
        cwd=ROOT,
        env={**os.environ, "HAULAGE_TEST_ALL": everything},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b.*?test_(\w+)\.py", done.stdout, re.MULTILINE)
    return {kind: "FAILED" if outcome == "ERROR" else outcome for outcome, kind in found}, done.stdout


@pytest.mark.process
def test_a_skip_is_a_failure_where_everything_has_to_run(tmp_path):
    here, _ = outcomes(tmp_path, "")
    there, told = outcomes(tmp_path, "1")

    other = {"fine": "PASSED", "xfail": "XFAIL", "random": "FAILED"}
    missing = KINDS.keys() - other.keys() - {"promise"}
    assert other | dict.fromkeys(missing, "SKIPPED") | {"promise": "SKIPPED"} == here
    assert other | dict.fromkeys(missing, "FAILED") | {"promise": "SKIPPED"} == there
    assert len(missing) == len(set(re.findall(r"test_(\w+)\.py\S* was skipped, but HAULAGE_TEST_ALL=1", told)))
    assert re.search(r"HAULAGE_TEST_SEED=\d+ HAULAGE_TEST_TIMES=1 \./dev test test_random.py::test\n", told)

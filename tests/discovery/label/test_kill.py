"""`hansfree label` as a user starts it: it prints an address, serves the page there, and loses nothing on a kill."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from hansfree.discovery.label.ranking import (
    UNKNOWN,
    YES,
    read_labels,
)
from tests.discovery.label.worlds import World

PROGRAM = "from hansfree.cli import main; main()"


@pytest.mark.slow
def test_a_killed_page_has_saved_every_mark(small: World) -> None:
    command = [sys.executable, "-c", PROGRAM, "label", str(small.file), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = next(
                found.group(1)
                for line in process.stdout
                if (found := re.search(r"(http://127\.0\.0\.1:\d+/\S+/)", line))
            )
            with urllib.request.urlopen(address, timeout=60) as response:
                assert b"hansfree label" in response.read()
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(re.sub(r"/[^/]+/$", "/", address), timeout=60)
            body = json.dumps({"images": [3], "has_artifact": True}).encode()
            headers = {"content-type": "application/json", "origin": address.rsplit("/", 2)[0]}
            request = urllib.request.Request(f"{address}api/labels", body, headers)
            with urllib.request.urlopen(request, timeout=60) as response:
                assert json.load(response)["yes"] == 1
        finally:
            process.kill()
    names = [f"{row:05}.png" for row in range(40)]
    marks = read_labels(small.table, names, column="artifact")
    assert marks.tolist() == [YES if row == 3 else UNKNOWN for row in range(40)]

"""The crash model on real recordings: what publishing leaves is whole or absent, and every fsync is needed."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable

import pytest

from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import ADMISSION, ARRAY_NAMES, DOCUMENTS, RECEIPT
from tests.crashes.journal import Operation, record
from tests.crashes.model import Promise, State, crash_states
from tests.crashes.work import golden_pins

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]
CLAIMED = {*ARRAY_NAMES["casebits-1"].dtypes, DOCUMENTS, RECEIPT}
GENERATION = "generations/golden/"
# Working files and caches: read through digests that tell a torn one, and made again.
REMADE = (f"{GENERATION}verdicts/", f"{GENERATION}index/")


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> list[Operation]:
    folder = tmp_path_factory.mktemp("crashes")
    home = folder / "home"
    return record("tests.crashes.work", [str(golden_pins(folder)), str(home)], home, folder / "trace")


def violation(promise: Promise, state: State) -> str:
    """Return what is wrong with a state; "" for one that a consumer may find."""
    state = {path: content for path, content in state.items() if not path.startswith(REMADE)}
    if torn := sorted(path for path, content in state.items() if content is None):
        return f"torn {torn[0]}"
    if lost := sorted(path for path in promise.files.keys() - state.keys() if not path.startswith(REMADE)):
        return f"lost {lost[0]}"
    if back := sorted(path for path, content in state.items() if (path, content) in promise.outdated):
        return f"an older {back[0]} is back"
    regions = {path.rpartition("/")[0] for path in state if path.startswith(f"{GENERATION}regions/")}
    for folder in sorted(regions):
        found = {path.rpartition("/")[2] for path in state if path.startswith(f"{folder}/")}
        if found - {ADMISSION} != CLAIMED:
            return f"part of {folder}"
    return _broken_frontier(state)


def _broken_frontier(state: State) -> str:
    latest = state.get(f"{GENERATION}LATEST.json")
    if not latest:
        return ""
    named = json.loads(latest)["manifest"]
    manifest = state.get(GENERATION + named["path"]) or b""
    if sha256(manifest) != named["sha256"]:
        return "LATEST names a manifest that is not there"
    for region in json.loads(manifest)["regions"]:
        for file in region["files"]:
            if sha256(state.get(f"{GENERATION}{region['path']}/{file['name']}") or b"") != file["sha256"]:
                return f"the frontier names {region['path']}/{file['name']}, which is not there"
    return ""


def first_violation(operations: Iterable[Operation]) -> tuple[int, str]:
    """Return how many states were looked at, and the first violation ("" for none)."""
    number = 0
    for number, (promise, state) in enumerate(crash_states(list(operations)), 1):
        if found := violation(promise, state):
            return number, found
    return number, ""


def test_no_power_cut_leaves_a_state_that_a_consumer_may_not_find(operations: list[Operation]) -> None:
    states, found = first_violation(operations)
    print(f"{len(operations)} operations, {states} distinct states")
    assert found == ""
    assert states > 50


# What no promise rests on, by reason: how often, and of what.
IDLE = {
    ".": 1,  # the name of staging, where nothing is read
    "generations/golden": 3,  # the names of verdicts/ and index/, working files; codec/, which the next one covers
    "generations/golden/index": 1,  # the name of its staging
    "generations/golden/codec": 3,  # its first file, which the fsync for the second one covers; both once more
    "generations/golden/regions": 2,  # each region's name once more, when its admission is put there
    ".staging/content": 2,  # the codec's files once more: they are there already
}


def test_every_fsync_is_needed(operations: list[Operation]) -> None:
    idle, needed = Counter[str](), 0
    for at, operation in enumerate(operations):
        if operation.kind != "fsync":
            continue
        _, found = first_violation(operations[:at] + operations[at + 1 :])
        if found:
            needed += 1
            print(f"without fsync {at} of {_plain(operation.path)}: {found}")
        else:
            idle[_plain(operation.path)] += 1
    print(f"{needed} fsyncs, each found when it is left out")
    assert idle == IDLE
    assert needed >= 30


def _plain(path: str) -> str:
    """Return a path without what is random in it."""
    return re.sub(r"(file|golden\.\d+)\.[0-9a-f]{32}/(region/)?", "", path)

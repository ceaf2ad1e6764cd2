"""The real client against a server that speaks the Hub's protocol: what is read, and each way in which it may fail."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, Refused
from casebits_dagster.stores.base import Store
from casebits_dagster.stores.hub import HubStore, Patience
from tests.stores.conftest import TOKEN
from tests.stores.contract import StoreContract
from tests.stores.hub_server import Asked, Fault, HubServer, hub_server

REPO, REVISION, OTHER = "nobody/texts", "0123456789" * 4, "f" * 40
CONTENT = bytes(range(256)) * 4
SHA256 = sha256(CONTENT)
WHERE = f"{REPO}@01234567/a.bin"
QUICK = Patience(attempts=4, pause=0.0, longest_pause=0.0, timeout=5.0)


@pytest.fixture
def server(contract_server: HubServer) -> HubServer:
    contract_server.put(REPO, REVISION, "a.bin", CONTENT)
    return contract_server


@pytest.fixture
def store(server: HubServer) -> HubStore:
    return HubStore(REPO, REVISION, server.endpoint, QUICK)


class TestHubStore(StoreContract):
    @pytest.fixture
    def root(self, server: HubServer) -> HubServer:
        server.put(REPO, REVISION, "a/b", b"")
        return server

    def holding(self, root: Any, files: dict[str, bytes]) -> Store:
        for path, content in files.items():
            root.put(REPO, REVISION, path, content, large=len(content) > 10)
        return HubStore(REPO, REVISION, root.endpoint, QUICK)


def test_a_read_is_one_look_and_one_range_and_the_token_stays_with_the_hub(store: HubStore, server: HubServer) -> None:
    assert store.read_range("a.bin", 100, 300) == CONTENT[100:300]
    assert store.read_range("a.bin", 1000, 2000) == CONTENT[1000:]
    resolve, storage = f"/datasets/{REPO}/resolve/{REVISION}/a.bin", f"/storage/{SHA256}"
    assert server.asked == [
        Asked("look", resolve, None, f"Bearer {TOKEN}"),
        Asked("read", resolve, "bytes=100-299", f"Bearer {TOKEN}"),
        Asked("storage", storage, "bytes=100-299", None),
        Asked("read", resolve, "bytes=1000-1023", f"Bearer {TOKEN}"),
        Asked("storage", storage, "bytes=1000-1023", None),
    ]


def test_the_published_hash_is_that_of_a_large_file(store: HubStore, server: HubServer) -> None:
    server.put(REPO, REVISION, "small.txt", b"small", large=False)
    assert (store.sha256("a.bin"), store.sha256("small.txt")) == (SHA256, None)
    assert store.get("small.txt") == b"small"


def test_a_broken_connection_goes_on_where_it_broke(store: HubStore, server: HubServer) -> None:
    server.faults = [Fault(stage="storage", cut=7), Fault(stage="storage", cut=0), Fault(stage="storage", chunked=-990)]
    assert store.get("a.bin") == CONTENT
    ranges = [asked.range for asked in server.asked if asked.stage == "storage"]
    assert ranges == ["bytes=0-1023", "bytes=7-1023", "bytes=7-1023", "bytes=34-1023"]


def test_only_failures_that_bring_nothing_count(store: HubStore, server: HubServer) -> None:
    server.faults = [Fault(stage="storage", cut=cut) for cut in (0, 0, 0, 1) * 5]
    assert store.get("a.bin") == CONTENT
    server.faults = [Fault(stage="storage", cut=0)] * 4
    with pytest.raises(Refused) as caught:
        store.get("a.bin")
    assert str(caught.value) == (
        f"STORE_UNREACHABLE {WHERE}: {server.endpoint} cannot be reached: peer closed connection without sending "
        "complete message body (received 0 bytes, expected 1024), 4 times in a row "
        "(check the network, the proxy and HF_ENDPOINT, then run it again)"
    )


@pytest.mark.parametrize("stage", ["look", "read", "storage"])
@pytest.mark.parametrize("status", [408, 429, 500, 502, 501, 503, 504, 529])
def test_a_server_that_is_busy_is_asked_again(store: HubStore, server: HubServer, stage: Any, status: int) -> None:
    server.faults = [Fault(stage=stage, status=status)] * 3
    assert (store.get("a.bin"), server.count(stage), server.faults) == (CONTENT, 4, [])
    busy = HubStore(REPO, REVISION, server.endpoint, QUICK)
    server.faults = [Fault(stage=stage, status=status)] * 4
    with pytest.raises(Refused) as caught:
        busy.get("a.bin")
    assert str(caught.value) == (
        f"STORE_UNREACHABLE {WHERE}: {server.endpoint} cannot be reached: status {status}, 4 times in a row "
        "(check the network, the proxy and HF_ENDPOINT, then run it again)"
    )


def test_pauses_grow_and_heed_what_the_server_asks_for_up_to_a_bound(server: HubServer) -> None:
    def seconds(patience: Patience, *headers: dict[str, str]) -> float:
        server.faults = [Fault(stage="read", status=429, headers=asked) for asked in headers]
        store, begun = HubStore(REPO, REVISION, server.endpoint, patience), time.monotonic()
        assert store.get("a.bin") == CONTENT
        return time.monotonic() - begun

    growing = seconds(Patience(pause=0.05, longest_pause=9.0), {}, {}, {"Retry-After": "soon"})
    heeded = seconds(Patience(pause=9.0, longest_pause=9.0), {"Retry-After": "0"})
    assert (0.35 <= growing < 3, heeded < 3) == (True, True)
    for asked in ({"Retry-After": "3600"}, {"RateLimit": '"resolvers";r=0;t=300'}):
        assert (0.3 <= seconds(Patience(pause=0.0, longest_pause=0.3), asked) < 3) is True


RANGE = "206 bytes 0-1023/1024, 1024 bytes"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            Fault(stage="storage", ignore_range=True),
            f"STORE_PROTOCOL {WHERE}: expected {RANGE}, read 200 None, 1024 bytes",
        ),
        (
            Fault(stage="storage", headers={"Content-Range": "bytes 1-1024/1025"}),
            f"STORE_PROTOCOL {WHERE}: expected {RANGE}, read 206 bytes 1-1024/1025, 1024 bytes",
        ),
        (
            Fault(stage="storage", headers={"Content-Length": "1023"}),
            f"STORE_PROTOCOL {WHERE}: expected {RANGE}, read 206 bytes 0-1023/1024, 1023 bytes",
        ),
        (Fault(stage="storage", chunked=1), f"STORE_PROTOCOL {WHERE}: the answer is longer than the range"),
        (Fault(stage="storage", status=416), f"STORE_PROTOCOL {WHERE}: ENDPOINT answers 416: no reason given"),
        (
            Fault(stage="read", headers={"X-Repo-Commit": OTHER}),
            f"REVISION_NOT_PINNED {WHERE}: the Hub answers with another revision, expected {REVISION}, read {OTHER}",
        ),
        (
            Fault(stage="look", headers={"X-Repo-Commit": OTHER}),
            f"REVISION_NOT_PINNED {WHERE}: the Hub answers with another revision, expected {REVISION}, read {OTHER}",
        ),
        (
            Fault(stage="read", headers={"X-Linked-Etag": '"moved"'}),
            f"SOURCE_PIN {WHERE}: the file changed between two reads of one revision, "
            f"expected 1024 bytes, tag {SHA256}, read 1024 bytes, tag moved",
        ),
        (
            Fault(stage="read", headers={"X-Linked-Size": "1025"}),
            f"SOURCE_PIN {WHERE}: the file changed between two reads of one revision, "
            f"expected 1024 bytes, tag {SHA256}, read 1025 bytes, tag {SHA256}",
        ),
        (
            Fault(stage="look", headers={"X-Repo-Commit": ""}),
            f"STORE_PROTOCOL {WHERE}: ENDPOINT does not answer as the Hub does, "
            f"expected revision, size and tag, read revision None, 1024 bytes, tag {SHA256}",
        ),
        (
            Fault(stage="look", headers={"X-Linked-Size": "", "X-Linked-Etag": ""}),
            f"STORE_PROTOCOL {WHERE}: ENDPOINT does not answer as the Hub does, "
            f"expected revision, size and tag, read revision {REVISION}, None bytes, tag None",
        ),
        (
            Fault(stage="look", headers={"X-Linked-Size": "-5"}),
            f"STORE_PROTOCOL {WHERE}: ENDPOINT does not answer as the Hub does, "
            f"expected revision, size and tag, read revision {REVISION}, -5 bytes, tag {SHA256}",
        ),
        (
            Fault(stage="storage", headers={"Content-Encoding": "gzip"}),
            f"STORE_PROTOCOL {WHERE}: expected bytes as they are, read gzip",
        ),
        (
            Fault(stage="read", status=403, headers={"X-Error-Message": "no"}),
            f"STORE_FORBIDDEN {WHERE}: ENDPOINT answers 403: no (log in with `hf auth login` or set HF_TOKEN to a "
            "token that may read it; a gated dataset also asks you to accept its terms at ENDPOINT/datasets/"
            f"{REPO})",
        ),
    ],
)
def test_what_is_not_what_was_asked_for_is_refused_at_once(
    store: HubStore, server: HubServer, fault: Fault, message: str
) -> None:
    server.faults = [fault]
    with pytest.raises(Refused) as caught:
        store.get("a.bin")
    assert str(caught.value).replace(server.endpoint, "ENDPOINT") == message
    assert server.count(fault.stage) == 1


def test_a_change_during_a_read_is_seen_when_it_goes_on(store: HubStore, server: HubServer) -> None:
    server.faults = [Fault(stage="storage", cut=9), Fault(stage="read", headers={"ETag": '"of the redirect"'})]
    assert store.get("a.bin") == CONTENT
    server.faults = [Fault(stage="storage", cut=9), Fault(stage="storage", headers={"Content-Range": "bytes 9-9/10"})]
    with pytest.raises(Refused) as caught:
        store.get("a.bin")
    expected = "expected 206 bytes 9-1023/1024, 1015 bytes, read 206 bytes 9-9/10, 1015 bytes"
    assert str(caught.value) == f"STORE_PROTOCOL {WHERE}: {expected}"


def test_a_small_file_that_changes_is_refused(server: HubServer) -> None:
    server.put(REPO, REVISION, "small", b"one", large=False)
    store = HubStore(REPO, REVISION, server.endpoint, QUICK)
    assert store.get("small") == b"one"
    server.put(REPO, REVISION, "small", b"two", large=False)
    with pytest.raises(Refused) as caught:
        store.get("small")
    assert (caught.value.code, caught.value.where) == ("SOURCE_PIN", f"{REPO}@01234567/small")


@pytest.mark.parametrize(
    ("repo", "revision", "message"),
    [
        (REPO, REVISION, f"FILE_MISSING {REPO}@01234567/none: ENDPOINT answers 404: Entry not found"),
        (REPO, OTHER, f"FILE_MISSING {REPO}@ffffffff/none: ENDPOINT answers 404: Invalid rev id: {OTHER}"),
    ],
)
def test_what_the_hub_does_not_have_is_absent(server: HubServer, repo: str, revision: str, message: str) -> None:
    with pytest.raises(Absent) as caught:
        HubStore(repo, revision, server.endpoint, QUICK).size("none")
    assert str(caught.value).replace(server.endpoint, "ENDPOINT") == message


def test_a_gated_dataset_says_how_to_log_in(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.token = "hf_other"
    store = HubStore(REPO, REVISION, server.endpoint, QUICK)
    with pytest.raises(Refused) as caught:
        store.size("a.bin")
    assert str(caught.value) == (
        f"STORE_FORBIDDEN {WHERE}: {server.endpoint} answers 401: Access to dataset {REPO} is restricted. "
        "(log in with `hf auth login` or set HF_TOKEN to a token that may read it; a gated dataset also asks you to "
        f"accept its terms at {server.endpoint}/datasets/{REPO})"
    )
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert store.size("a.bin") == 1024


def test_a_token_that_no_header_can_carry_is_named(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_\u00e9")
    with pytest.raises(Refused, match=r"^STORE_FORBIDDEN .*the token is not of ASCII characters"):
        HubStore(REPO, REVISION, server.endpoint, QUICK).size("a.bin")


@pytest.mark.parametrize("revision", ["main", "refs/convert/parquet", "0123456", REVISION.upper().replace("0", "A")])
def test_nothing_but_a_full_revision_is_read(revision: str) -> None:
    with pytest.raises(Refused) as caught:
        HubStore(REPO, revision)
    assert str(caught.value) == (
        f"REVISION_NOT_PINNED {REPO}: expected a full revision of 40 lower-case hex digits, not a branch or tag, "
        f"read {revision}"
    )


def test_a_hub_that_is_not_there_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_server() as server:
        endpoint = server.endpoint
    monkeypatch.setenv("HF_ENDPOINT", f"{endpoint}/")
    with pytest.raises(Refused) as caught:
        HubStore(REPO, REVISION, patience=QUICK).size("a.bin")
    assert str(caught.value) == (
        f"STORE_UNREACHABLE {WHERE}: {endpoint} cannot be reached: [Errno 111] Connection refused, 4 times in a row "
        "(check the network, the proxy and HF_ENDPOINT, then run it again)"
    )


def test_offline_mode_is_heeded(store: HubStore, server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(Refused) as caught:
        store.size("a.bin")
    assert str(caught.value) == (
        f"STORE_UNREACHABLE {WHERE}: {server.endpoint} cannot be reached: HF_HUB_OFFLINE is set (unset it)"
    )
    assert server.asked == []


SETBACKS = st.one_of(
    st.builds(lambda cut: Fault(stage="storage", cut=cut), st.integers(0, 1100)),
    st.builds(lambda less: Fault(stage="storage", chunked=-less), st.integers(1, 1024)),
    st.builds(
        lambda stage, status, wait: Fault(stage=stage, status=status, headers={"Retry-After": wait}),
        st.sampled_from(["look", "read", "storage"]),
        st.sampled_from([408, 429, 500, 502, 503, 504]),
        st.sampled_from(["", "1", "Fri, 31 Dec 1999 23:59:59 GMT"]),
    ),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=st.lists(SETBACKS, max_size=3), begin=st.integers(0, 1030), length=st.integers(0, 1100))
def test_any_setbacks_below_the_limit_give_the_same_bytes(
    server: HubServer, faults: list[Fault], begin: int, length: int
) -> None:
    server.faults = list(faults)
    store = HubStore(REPO, REVISION, server.endpoint, QUICK)
    assert store.read_range("a.bin", begin, begin + length) == CONTENT[begin : begin + length]

from __future__ import annotations

import hashlib
import re
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from casebits_dagster.records.errors import Absent, CasebitsError, Refused
from casebits_dagster.stores.base import WritableStore
from casebits_dagster.stores.object import ObjectStore, object_store
from tests.stores.conftest import set_environment
from tests.stores.contract import WritableStoreContract
from tests.stores.s3_server import BUCKET, READER, Fault, Server, Wire, rclone

CONFLICT = (
    "STORE_CONFLICT {}: other bytes are published (what is published is never overwritten; a change is a new name)"
)
UNREACHABLE = "look at AWS_ENDPOINT_URL and at the server, then run again: what was acknowledged is kept"
FORBIDDEN = "look at the AWS_* credentials, and at what they may do in this bucket"
PROTOCOL = "look at the bucket, AWS_REGION and AWS_ENDPOINT_URL"
NO_CAS = "publish to a store that honours If-None-Match, If-Match and x-amz-checksum-sha256"


class TestMemory(WritableStoreContract):
    def make(self, root: Any) -> WritableStore:
        return object_store("memory://")


class TestS3(WritableStoreContract):
    @pytest.fixture
    def root(self, s3_url: str) -> str:
        return s3_url

    def make(self, root: Any) -> WritableStore:
        return object_store(root)


@pytest.fixture
def store(s3_wire: Wire, s3_url: str) -> ObjectStore:
    """A store behind the wire, with nothing yet seen on it."""
    opened = object_store(s3_url, patience=5.0)
    s3_wire.seen.clear()
    return opened


@pytest.fixture
def hasty(s3_wire: Wire, s3_url: str) -> ObjectStore:
    return object_store(s3_url, patience=0.1)


def _statuses(wire: Wire, method: str) -> list[int]:
    return [seen.status for seen in wire.seen if seen.method == method]


def _refused(use: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        use()
    return re.sub(r"\.probe/[0-9a-f]{32}", ".probe/<name>", str(caught.value))


# What a write sends, and what becomes of its answer.


def test_every_write_is_conditional_and_carries_its_sha256(store: ObjectStore, s3_wire: Wire, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"file")
    store.put_new("a", b"")
    store.put_file("b", tmp_path / "file")
    store.replace("c", None, b"one")
    store.replace("c", b"one", b"two")
    sent = [seen.headers for seen in s3_wire.seen if seen.method == "PUT"]
    contents = [b"", b"file", b"one", b"two"]
    sums = [b64encode(hashlib.sha256(content).digest()).decode() for content in contents]
    assert [headers.get("x-amz-checksum-sha256") for headers in sent] == sums
    assert [headers.get("if-none-match") for headers in sent] == ["*", "*", "*", None]
    e_tag = hashlib.md5(b"one").hexdigest()
    assert [headers.get("if-match") for headers in sent] == [None, None, None, f'"{e_tag}"']


def test_bytes_that_changed_on_the_way_are_refused_by_the_store(store: ObjectStore, s3_wire: Wire) -> None:
    s3_wire.faults = [Fault(method="PUT", path="/a", body=b"hellO")]
    said = _refused(lambda: store.put_new("a", b"hello"))
    assert said == f"STORE_PROTOCOL a: {store.url}: answered 400 BadDigest ({PROTOCOL})"
    assert store.exists("a") is False
    assert store.put_new("a", b"hello") is True


LOST = [
    pytest.param(Fault(method="PUT", path="/a", cut=0), [200, 412], id="arrived, no answer"),
    pytest.param(Fault(method="PUT", path="/a", cut=0, forward=False), [0, 200], id="did not arrive"),
    pytest.param(Fault(method="PUT", path="/a", status=500), [500, 412], id="arrived, 500"),
    pytest.param(Fault(method="PUT", path="/a", status=503, forward=False), [503, 200], id="did not arrive, 503"),
    pytest.param(Fault(method="PUT", path="/a", status=409, forward=False), [409, 200], id="another one under way"),
]


@pytest.mark.parametrize(("fault", "statuses"), LOST)
def test_a_creation_without_an_answer_is_settled(
    store: ObjectStore, s3_wire: Wire, fault: Fault, statuses: list[int]
) -> None:
    s3_wire.faults = [fault]
    assert store.put_new("a", b"one") is True
    assert store.get("a") == b"one"
    assert _statuses(s3_wire, "PUT") == statuses


@pytest.mark.parametrize(("fault", "statuses"), LOST)
def test_a_replacement_without_an_answer_is_settled(
    store: ObjectStore, s3_wire: Wire, fault: Fault, statuses: list[int]
) -> None:
    store.put_new("a", b"one")
    s3_wire.seen.clear()
    s3_wire.faults = [fault]
    assert store.replace("a", b"one", b"two") is True
    assert store.get("a") == b"two"
    # Once the new bytes are seen there, nothing is left to send.
    assert _statuses(s3_wire, "PUT") == [status for status in statuses if status != 412]


def test_a_lost_answer_does_not_hide_the_bytes_of_another_writer(store: ObjectStore, s3_wire: Wire) -> None:
    store.put_new("a", b"theirs")
    s3_wire.faults = [Fault(method="PUT", path="/a", cut=0), Fault(method="PUT", path="/a", cut=0)]
    with pytest.raises(CasebitsError) as caught:
        store.put_new("a", b"ours")
    assert str(caught.value) == CONFLICT.format("a")
    assert store.replace("a", b"theirs", b"new") is True


def test_a_replacement_of_what_was_removed_meanwhile_looks_again(store: ObjectStore, s3_wire: Wire) -> None:
    store.put_new("a", b"one")
    # As S3 itself answers an If-Match for a name that holds nothing.
    s3_wire.faults = [Fault(method="PUT", path="/a", status=404, forward=False)]
    assert store.replace("a", b"one", b"two") is True


def test_what_is_refused_though_it_holds_is_given_up(hasty: ObjectStore, s3_wire: Wire) -> None:
    s3_wire.faults = [Fault(method="PUT", path="/a", status=412, forward=False)] * 20
    said = _refused(lambda: hasty.put_new("a", b"one"))
    assert said == f"STORE_PROTOCOL a: {hasty.url}: refuses a condition that holds ({NO_CAS})"


# Files.


def test_a_file_is_created_adopted_and_compared_to_its_last_byte(store: ObjectStore, tmp_path: Path) -> None:
    content = bytes(range(256)) * (9 << 12)  # 9 MiB, more than two blocks
    file = tmp_path / "file"
    file.write_bytes(content)
    assert store.put_file("a", file) is True
    assert store.put_file("a", file) is False
    assert store.put_new("a", content) is False
    for other in (content[:-1], content + b"\0", content[:-1] + b"\0", b""):
        file.write_bytes(other)
        with pytest.raises(CasebitsError) as caught:
            store.put_file("a", file)
        assert str(caught.value) == CONFLICT.format("a")
    assert store.fetch("a", tmp_path / "fetched") == store.digest("a") == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "fetched").read_bytes() == content


def test_what_is_large_and_there_is_not_sent_again(store: ObjectStore, s3_wire: Wire) -> None:
    content = bytes(5 << 20)
    assert (store.put_new("a", content), store.put_new("a", content)) == (True, False)
    assert _statuses(s3_wire, "PUT") == [200]


def test_an_empty_file_is_created_and_fetched(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert store.put_file("a", tmp_path / "file") is True
    assert store.put_file("a", tmp_path / "file") is False
    assert store.fetch("a", tmp_path / "fetched") == hashlib.sha256(b"").hexdigest()
    assert (tmp_path / "fetched").read_bytes() == b""


def test_fetch_writes_new_files_only(store: ObjectStore, s3_wire: Wire, tmp_path: Path) -> None:
    store.put_new("a", b"one")
    (tmp_path / "there").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        store.fetch("a", tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == b"mine"
    with pytest.raises(Absent) as caught:
        store.fetch("none", tmp_path / "none")
    assert str(caught.value) == f"FILE_MISSING none: there is no such file below {store.url}"
    s3_wire.faults = [Fault(method="GET", path="/a", status=400)]
    assert _refused(lambda: store.fetch("a", tmp_path / "none")).startswith("STORE_PROTOCOL a: ") is True
    assert (tmp_path / "none").exists() is False


def test_a_stream_that_breaks_goes_on_where_it_broke(store: ObjectStore, s3_wire: Wire, tmp_path: Path) -> None:
    content = bytes(range(256)) * (5 << 12)
    store.put_new("a", content)
    s3_wire.seen.clear()
    s3_wire.faults = [Fault(method="GET", path="/a", cut=3 << 20), Fault(method="GET", path="/a", cut=1 << 20)]
    assert store.fetch("a", tmp_path / "fetched") == hashlib.sha256(content).hexdigest()
    assert _statuses(s3_wire, "GET") == [200, 206, 206]


MEASURED = """
import sys
from pathlib import Path
from casebits_dagster.stores.object import object_store

def held():
    (line,) = (line for line in open("/proc/self/status") if line.startswith("RssAnon"))
    return int(line.split()[1]) >> 10

store, file = object_store(sys.argv[1]), Path(sys.argv[2])
held_before = held()
store.put_file("a", file)
store.put_file("a", file)
store.fetch("a", file.with_name("fetched"))
print(held() - held_before)
"""


def test_files_are_not_held_in_memory(s3_url: str, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(64 << 20)
    command = [sys.executable, "-c", MEASURED, s3_url, str(tmp_path / "file")]
    megabytes = int(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    assert (megabytes < 32, megabytes) == (True, megabytes)


# Stores that cannot be used, and why.


@pytest.mark.parametrize(
    "url", ["gs://bucket", "s3://", "s3://a b/c", "s3:/bucket", "/folder", "memory://a", "s3://A_B"]
)
def test_what_is_not_an_object_store_is_refused(url: str) -> None:
    said = f"STORE_PROTOCOL {url}: expected s3://bucket/prefix, read {url} (look at CASEBITS_STORE)"
    assert _refused(lambda: object_store(url)) == said


def test_a_prefix_stays_below_its_bucket() -> None:
    said = "PATH_UNSAFE a/../b: name would leave its root, expected a relative path, read a/../b"
    assert _refused(lambda: object_store("s3://bucket/a/../b")) == said


def test_an_endpoint_is_a_url(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:8333")
    said = "STORE_PROTOCOL AWS_ENDPOINT_URL: expected http://host:port or https://host:port, read localhost:8333"
    assert _refused(lambda: object_store(s3_url)) == said


def test_a_variable_with_a_line_feed_is_refused(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1\n")
    said = "STORE_PROTOCOL AWS_REGION: expected printable characters, read a line feed or the like"
    assert _refused(lambda: object_store(s3_url)) == said


def test_a_wrong_secret_and_a_reader_are_forbidden(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    said = "STORE_FORBIDDEN .probe/<name>: {}: answered 403 {} ({})"
    assert _refused(lambda: object_store(s3_url)) == said.format(s3_url, "SignatureDoesNotMatch", FORBIDDEN)
    for name, value in READER.items():
        monkeypatch.setenv(name, value)
    assert _refused(lambda: object_store(s3_url)) == said.format(s3_url, "AccessDenied", FORBIDDEN)


def test_a_server_that_is_not_there_is_unreachable(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    set_environment(monkeypatch, port)
    said = f"STORE_UNREACHABLE .probe/<name>: {s3_url}: HTTP error: error sending request ({UNREACHABLE})"
    assert _refused(lambda: object_store(s3_url, patience=0.1)) == said


def test_faults_of_the_server_and_stalled_requests_are_given_up(hasty: ObjectStore, s3_wire: Wire) -> None:
    hasty.put_new("a", b"one")
    s3_wire.faults = [Fault(method=method, path="/a", status=503) for method in ("GET", "HEAD", "PUT")] * 20
    said = f"STORE_UNREACHABLE a: {hasty.url}: answered 503 ({UNREACHABLE})"
    for use in (hasty.get, hasty.exists, lambda name: hasty.replace(name, b"one", b"two")):
        assert _refused(lambda use=use: use("a")) == said  # type: ignore[misc]
    s3_wire.faults = [Fault(method="GET", path="/a", stall=1.0)] * 5
    said = f"STORE_UNREACHABLE a: {hasty.url}: HTTP error: error sending request ({UNREACHABLE})"
    assert _refused(lambda: hasty.get("a")) == said


def test_what_is_no_fault_of_the_server_is_not_tried_again(store: ObjectStore, s3_wire: Wire) -> None:
    s3_wire.faults = [Fault(method=method, path="/a", status=400) for method in ("PUT", "GET")]
    said = f"STORE_PROTOCOL a: {store.url}: answered 400 ({PROTOCOL})"
    assert _refused(lambda: store.put_new("a", b"one")) == said
    assert _refused(lambda: store.read_range("a", 0, 1)) == said
    assert store.read_range("a", 0, 1) == b"o"


def test_a_bucket_that_is_not_there_is_told_at_once(store: ObjectStore, s3_wire: Wire) -> None:
    s3_wire.faults = [Fault(method="PUT", path="/a", status=404, forward=False)]
    said = f"STORE_PROTOCOL a: {store.url}: answered 404 ({PROTOCOL})"
    assert _refused(lambda: store.put_new("a", b"one")) == said


def test_a_server_that_ignores_conditions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rclone(tmp_path) as server:
        set_environment(monkeypatch, server.port)
        said = f"STORE_NO_CAS s3://{BUCKET}/a: the store ignores a second create ({NO_CAS})"
        assert _refused(lambda: object_store(f"s3://{BUCKET}/a")) == said
    assert [path.name for path in (tmp_path / "served" / BUCKET).rglob("*") if path.is_file()] == [".ready"]


@pytest.mark.parametrize(
    ("before", "fault", "what"),
    [
        (1, Fault(method="PUT", path="", status=200), "a second create"),
        (2, Fault(method="PUT", path="", status=412), "a matching If-Match"),
        (2, Fault(method="PUT", path="", status=200, forward=False), "an acknowledged write"),
        (3, Fault(method="PUT", path="", status=200), "a stale If-Match"),
        (4, Fault(method="PUT", path="", status=200), "a wrong checksum"),
    ],
)
def test_each_thing_that_a_store_ignores_is_named(
    s3_wire: Wire, s3_url: str, before: int, fault: Fault, what: str
) -> None:
    s3_wire.faults = [Fault(method="PUT", path="")] * before + [fault]
    said = f"STORE_NO_CAS {s3_url}: the store ignores {what} ({NO_CAS})"
    assert _refused(lambda: object_store(s3_url)) == said
    assert s3_wire.faults == []


def test_the_probe_waits_for_a_busy_server_and_leaves_nothing(s3_wire: Wire, s3_url: str) -> None:
    s3_wire.faults = [Fault(method="PUT", path="", status=503), Fault(method="PUT", path="", cut=0)]
    assert object_store(s3_url).list(".probe") == []


def test_memory_is_new_and_empty_each_time(s3_server: Server) -> None:
    one, two = object_store("memory://"), object_store("memory://")
    one.put_new("a", b"")
    assert (one.exists("a"), two.exists("a"), one.list(".probe")) == (True, False, [])

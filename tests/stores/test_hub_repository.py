"""Commits to a dataset, with the real client against the contract server; each known trap is a test with its name."""

from __future__ import annotations

import logging
import time
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, CasebitsError, Conflict, Refused
from casebits_dagster.stores.hub import HubFile, Patience
from casebits_dagster.stores.hub_repository import HubRepository
from tests.stores.conftest import TOKEN
from tests.stores.hub_server import Fault, HubServer, Stage

REPO = "nobody/texts"
QUICK = Patience(attempts=4, pause=0.0, longest_pause=0.0, timeout=60.0)
BIG = bytes(range(256)) * 50
MOVED = "somebody else has published meanwhile (look at what is published now, and build on that)"


@pytest.fixture
def server(contract_server: HubServer) -> HubServer:
    return contract_server


@pytest.fixture
def repository(server: HubServer) -> HubRepository:
    made = HubRepository(REPO, server.endpoint, QUICK)
    made.create(private=False)
    server.asked.clear()
    return made


def tree(server: HubServer) -> dict[str, bytes]:
    return {path: file.content for path, file in server.hub.repos[REPO].head.tree.items() if path[0] != "."}


def test_a_dataset_is_made_once_and_stays_as_it_is(server: HubServer) -> None:
    repository = HubRepository(REPO, server.endpoint, QUICK)
    with pytest.raises(Absent) as caught:
        repository.head()
    assert str(caught.value) == f"FILE_MISSING {REPO}: {server.endpoint} answers 404: Repository not found"
    repository.create(private=True)
    head = repository.head()
    repository.create(private=False)
    assert (repository.head(), server.hub.repos[REPO].private) == (head, True)
    assert head == server.hub.repos[REPO].head.id


def test_a_commit_holds_small_files_and_large_ones(
    repository: HubRepository, server: HubServer, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(BIG)
    parent = repository.head()
    add: dict[str, Path | bytes] = {
        "a/big": tmp_path / "big",
        "a/small.json": b"{}",
        "a/none.u16le": b"",
        "b.bin": b"b",
    }
    server.asked.clear()
    revision = repository.commit(parent, add, "four files")
    stages = sorted(asked.stage for asked in server.asked)
    assert stages == ["batch", "commit", "paths", "preupload", "upload", "upload", "verify", "verify"]
    large = [asked for asked in server.asked if asked.stage == "upload"]
    assert {asked.authorization for asked in large} == {None}
    assert repository.head() == revision != parent
    files = {path: file for path, file in repository.tree(revision).items() if path[0] != "."}
    assert files == {
        "a/big": HubFile(len(BIG), sha256(BIG)),
        "a/none.u16le": HubFile(0, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
        "a/small.json": HubFile(2, "9e26dfeeb6e641a33dae4961196235bdb965b21b"),
        "b.bin": HubFile(1, sha256(b"b")),
    }
    assert [path for path, file in files.items() if not file.holds(add[path])] == []
    assert [path for path, file in files.items() if file.holds(b"{]")] == []
    store = repository.at(revision)
    assert (store.get("a/big"), store.fetch("a/big", tmp_path / "copy")) == (BIG, sha256(BIG))
    assert ((tmp_path / "copy").read_bytes(), store.list("a"), store.list("none")) == (
        BIG,
        ["a/big", "a/none.u16le", "a/small.json"],
        [],
    )


def test_history_is_kept_and_a_tree_comes_in_pages(repository: HubRepository, server: HubServer) -> None:
    server.hub.page = 2
    first = repository.commit(repository.head(), {f"a/{n}": b"1" for n in range(5)}, "first")
    second = repository.commit(first, {"a/0": b"2"}, "second")
    assert (len(repository.tree(first)), len(repository.tree(second, "a"))) == (6, 5)
    assert (repository.at(first).get("a/0"), repository.at(second).get("a/0")) == (b"1", b"2")
    api = HfApi(endpoint=server.endpoint)
    titles = [commit.title for commit in api.list_repo_commits(REPO, repo_type="dataset")]
    assert titles == ["second", "first", "initial commit"]
    api.create_tag(REPO, tag="v1", revision=first, repo_type="dataset")
    refs = api.list_repo_refs(REPO, repo_type="dataset")
    assert ([branch.target_commit for branch in refs.branches], [tag.target_commit for tag in refs.tags]) == (
        [second],
        [first],
    )


# The traps.


def test_trap_1_a_download_of_the_right_size_and_other_bytes_is_refused_and_not_kept(
    repository: HubRepository, server: HubServer, tmp_path: Path
) -> None:
    store = repository.at(repository.commit(repository.head(), {"big.bin": BIG, "small": b"0"}, "files"))
    ways: list[tuple[str, bytes, Stage]] = [("big.bin", BIG, "storage"), ("small", b"0", "read")]
    for path, content, stage in ways:
        server.faults = [Fault(stage=stage, corrupt=True)]
        with pytest.raises(Refused) as caught:
            store.get(path)
        other = sha256(bytes(byte ^ 1 for byte in content))
        assert str(caught.value) == (
            f"FILE_HASH {REPO}@{store.revision[:8]}/{path}: the Hub sent other bytes than it tells of, "
            f"expected tag {store.file(path).tag}, read sha256 {other} (run it again)"
        )
        assert store.get(path) == content
    server.faults = [Fault(stage="storage", corrupt=True)]
    assert store.fetch("big.bin", tmp_path / "one") == sha256(bytes(byte ^ 1 for byte in BIG))
    assert store.fetch("big.bin", tmp_path / "two") == sha256(BIG)


def test_trap_2_a_hub_that_is_busy_is_asked_again_and_never_answered_for_from_a_cache(
    repository: HubRepository, server: HubServer
) -> None:
    first = repository.head()
    assert repository.at(first).size(".gitattributes") > 0
    second = repository.commit(first, {"a": b"a"}, "a")
    server.faults = [Fault(stage="info", status=503)] * 3
    assert repository.head() == second
    server.faults = [Fault(stage="info", status=503)] * 4
    with pytest.raises(Refused) as caught:
        repository.head()
    assert str(caught.value) == (
        f"STORE_UNREACHABLE {REPO}: {server.endpoint} cannot be reached: status 503, 4 times in a row "
        "(check the network, the proxy and HF_ENDPOINT, then run it again)"
    )


def test_trap_3_content_equal_to_the_heads_is_answered_with_the_head_whatever_the_parent(
    repository: HubRepository, server: HubServer
) -> None:
    parent = repository.head()
    head = repository.commit(parent, {"LATEST.json": b"1"}, "one")
    # The same version from another publisher: it is adopted.
    assert repository.commit(parent, {"LATEST.json": b"1"}, "one again") == head
    assert server.count("commit") == 1
    # Another version: it lost the race.
    with pytest.raises(Conflict) as caught:
        repository.commit(parent, {"LATEST.json": b"2"}, "two")
    assert str(caught.value) == f"STORE_CONFLICT {REPO}@{parent[:8]}: {MOVED}"
    assert tree(server) == {"LATEST.json": b"1"}


def test_trap_3_when_the_head_moves_on_before_it_is_named(repository: HubRepository, server: HubServer) -> None:
    parent = repository.head()
    repository.commit(parent, {"LATEST.json": b"1"}, "one")
    repo = server.hub.repos[REPO]

    def overtake() -> None:
        repo.add("two", {**repo.head.tree, "LATEST.json": server.hub.large(b"2")})

    # Equal at the preupload; when the client asks which commit that is, somebody has committed other content.
    server.faults = [Fault(stage="info", status=503, then=overtake)]
    with pytest.raises(Conflict) as caught:
        repository.commit(parent, {"LATEST.json": b"1"}, "one again")
    assert str(caught.value) == f"STORE_CONFLICT {REPO}@{parent[:8]}: {MOVED}"


@pytest.mark.parametrize("there", [True, False])
def test_trap_4_a_file_that_the_hub_ignores_is_missed(
    repository: HubRepository, server: HubServer, there: bool
) -> None:
    parent = repository.commit(repository.head(), {".gitignore": b"*.bin\n"}, "ignore")
    if there:
        repo = server.hub.repos[REPO]
        parent = repo.add("by hand", {**repo.head.tree, "b.bin": server.hub.large(b"old")}).id
    with pytest.raises(Refused) as caught:
        repository.commit(parent, {"a.txt": b"a", "b.bin": b"b"}, "two files")
    assert str(caught.value) == (
        f"STORE_PROTOCOL {REPO}@{parent[:8]}/b.bin: the Hub left it out of a commit, as a .gitignore there may say "
        "(change that .gitignore)"
    )


def test_trap_5_files_are_one_commit_not_several(repository: HubRepository, server: HubServer) -> None:
    add: dict[str, Path | bytes] = {f"regions/{n:05d}/ids.u16le": b"%d" % n for n in range(84)}
    repository.commit(repository.head(), add, "84 files")
    counted = {stage: server.count(stage) for stage in ("preupload", "batch", "upload", "verify", "commit", "paths")}
    assert counted == {"preupload": 1, "batch": 1, "upload": 84, "verify": 84, "commit": 1, "paths": 1}
    assert [commit.title for commit in server.hub.repos[REPO].commits.values()] == ["initial commit", "84 files"]


@pytest.mark.parametrize("closed", [Fault(stage="commit", closed="after"), Fault(stage="commit", acted=503)])
def test_trap_7_a_lost_answer_to_a_commit_is_looked_for_before_it_is_sent_again(
    repository: HubRepository, server: HubServer, closed: Fault
) -> None:
    parent = repository.head()
    server.faults = [closed]
    revision = repository.commit(parent, {"a.bin": b"a", "b": b"b"}, "two files")
    assert (server.count("commit"), repository.head()) == (1, revision)
    assert len(server.hub.repos[REPO].commits) == 2


def test_trap_7_when_others_have_committed_since(repository: HubRepository, server: HubServer) -> None:
    repo, parent = server.hub.repos[REPO], repository.head()

    def follow() -> None:
        repo.add("theirs", {**repo.head.tree, "theirs": server.hub.large(b"")})

    server.faults = [Fault(stage="commit", closed="after", then=follow)]
    revision = repository.commit(parent, {"a": b"a"}, "ours")
    assert (revision, [commit.title for commit in repo.commits.values()]) == (
        repo.head.id,
        ["initial commit", "ours", "theirs"],
    )
    # A commit that did not happen, and whose parent is the head no more.
    server.faults = [Fault(stage="commit", closed="before", then=follow)]
    with pytest.raises(Conflict) as caught:
        repository.commit(revision, {"a": b"b"}, "ours")
    assert str(caught.value) == f"STORE_CONFLICT {REPO}@{revision[:8]}: {MOVED}"
    assert server.count("commit") == 2


# What may go wrong besides.


def test_a_commit_that_did_not_happen_is_sent_again(repository: HubRepository, server: HubServer) -> None:
    server.faults = [Fault(stage="commit", closed="before"), Fault(stage="commit", status=429)]
    revision = repository.commit(repository.head(), {"a.bin": b"a"}, "a")
    assert (server.count("commit"), server.count("upload"), repository.head()) == (3, 1, revision)


def test_a_commit_is_given_up(repository: HubRepository, server: HubServer) -> None:
    parent = repository.head()
    server.faults = [Fault(stage="commit", status=500)] * 4
    with pytest.raises(Refused) as caught:
        repository.commit(parent, {"a": b"a"}, "a")
    assert str(caught.value) == (
        f"STORE_UNREACHABLE {REPO}@{parent[:8]}: {server.endpoint} cannot be reached: status 500, 4 times in a row "
        "(check the network, the proxy and HF_ENDPOINT, then run it again)"
    )
    assert (server.count("commit"), tree(server)) == (4, {})


def test_a_hub_that_falls_silent_is_not_waited_for_for_ever(server: HubServer) -> None:
    repository = HubRepository(REPO, server.endpoint, replace(QUICK, timeout=0.05))
    repository.create(private=False)
    server.faults = [Fault(stage="commit", closed="before", then=lambda: time.sleep(1.0))]
    revision = repository.commit(repository.head(), {"a": b"a"}, "a")
    assert (server.count("commit"), repository.head()) == (2, revision)


def test_an_upload_that_breaks_off_is_made_again(repository: HubRepository, server: HubServer) -> None:
    server.faults = [Fault(stage="upload", closed="before")]
    revision = repository.commit(repository.head(), {"a.bin": BIG}, "a")
    assert (server.count("upload"), server.count("commit"), repository.at(revision).get("a.bin")) == (2, 1, BIG)


@pytest.mark.parametrize(
    ("stage", "status", "message"),
    [
        ("create", 403, "STORE_FORBIDDEN {repo}: {hub} answers 403: no reason given ({login})"),
        ("preupload", 401, "STORE_FORBIDDEN {where}: {hub} answers 401: no reason given ({login})"),
        ("upload", 403, "STORE_FORBIDDEN {where}: {hub} answers 403: no reason given ({login})"),
        ("verify", 422, "STORE_PROTOCOL {where}: {hub} answers 422: no reason given"),
        ("commit", 400, "STORE_PROTOCOL {where}: {hub} answers 400: no reason given"),
        ("commit", 413, "STORE_PROTOCOL {where}: {hub} answers 413: no reason given"),
        ("commit", 412, "STORE_CONFLICT {where}: {moved}"),
        ("paths", 404, "FILE_MISSING {made}: {hub} answers 404: no reason given"),
    ],
)
def test_what_would_be_the_same_a_second_time_is_told_at_once(
    repository: HubRepository, server: HubServer, stage: Stage, status: int, message: str
) -> None:
    parent = repository.head()
    server.faults = [Fault(stage=stage, status=status)] * 2
    act = {"create": lambda: repository.create(private=True)}.get(
        stage, lambda: repository.commit(parent, {"a.bin": b"a"}, "a")
    )
    with pytest.raises(CasebitsError) as caught:
        act()
    login = "log in with `hf auth login` or set HF_TOKEN to a token that may write to it"
    made = f"{REPO}@{server.hub.repos[REPO].head.id[:8]}"
    names = {"repo": REPO, "where": f"{REPO}@{parent[:8]}", "hub": server.endpoint, "moved": MOVED, "made": made}
    assert str(caught.value) == message.format(**names, login=login)
    assert server.count(stage) == 1


def test_what_the_storage_got_otherwise_is_not_committed(repository: HubRepository, server: HubServer) -> None:
    server.faults = [Fault(stage="upload", corrupt=True)]
    parent = repository.head()
    with pytest.raises(Refused) as caught:
        repository.commit(parent, {"a.bin": b"a"}, "a")
    said = "the object is not what it was announced to be"
    assert str(caught.value) == f"STORE_PROTOCOL {REPO}@{parent[:8]}: {server.endpoint} answers 422: {said}"
    assert tree(server) == {}


def test_a_card_without_metadata_is_refused_by_the_hub(repository: HubRepository) -> None:
    parent = repository.head()
    with pytest.raises(Refused) as caught:
        repository.commit(parent, {"README.md": b"# None\n"}, "a card")
    assert str(caught.value) == (
        f"STORE_PROTOCOL {REPO}@{parent[:8]}: Invalid metadata in README.md.\n- no metadata between lines of ---"
    )
    repository.commit(parent, {"README.md": b"---\nlanguage: en\n---\n"}, "a card")


def test_an_answer_that_is_no_json_is_asked_for_again(repository: HubRepository, server: HubServer) -> None:
    server.faults = [Fault(stage="yaml", status=502)]
    assert repository.commit(repository.head(), {"README.md": b"---\nlanguage: en\n---\n"}, "a") == repository.head()


@pytest.mark.parametrize("repo", ["a/b/c", "a//b", "a/..", "a/-b", "a b/c"])
def test_a_name_that_no_dataset_has_is_refused(repo: str) -> None:
    with pytest.raises(Refused, match=rf"^STORE_PROTOCOL {repo}: "):
        HubRepository(repo)


def test_a_path_that_leaves_the_root_is_refused(repository: HubRepository) -> None:
    with pytest.raises(Refused, match=r"^PATH_UNSAFE \.\./a"):
        repository.commit(repository.head(), {"../a": b""}, "a")


def test_a_dataset_without_a_commit_is_not_published_to(repository: HubRepository, server: HubServer) -> None:
    server.faults = [Fault(stage="info", body=b'{"id": "nobody/texts"}')]
    with pytest.raises(Refused) as caught:
        repository.head()
    assert str(caught.value) == f"STORE_PROTOCOL {REPO}: {server.endpoint} tells of no commit"


def test_the_token_is_in_no_error_no_log_and_no_file(
    repository: HubRepository, server: HubServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    parent, told = repository.head(), list[str]()
    ways: list[tuple[Stage, int]] = [("preupload", 403), ("batch", 401), ("upload", 403), ("verify", 400)]
    ways += [("commit", 500), ("paths", 404), ("info", 503), ("tree", 404), ("yaml", 401), ("create", 401)]
    for stage, status in ways:
        server.faults = [Fault(stage=stage, status=status, headers={"X-Error-Message": "no"})] * 4
        try:
            repository.head()
            repository.tree(parent)
            card = b"---\nlanguage: en\n---\n"
            repository.commit(repository.head(), {"a.bin": b"%d" % len(told), "README.md": card}, "a")
            repository.create(private=True)
        except CasebitsError:
            told.append(traceback.format_exc())
    server.faults = []
    repository.commit(repository.head(), {"a.bin": b"a"}, "a")
    assert (len(told), {asked.authorization for asked in server.asked}) == (10, {f"Bearer {TOKEN}", None})
    kept = [file.content.decode("latin-1") for file in server.files.values()]
    titles = [commit.title for commit in server.hub.repos[REPO].commits.values()]
    assert [text for text in (*told, caplog.text, *kept, *titles, repr(vars(repository))) if TOKEN in text] == []

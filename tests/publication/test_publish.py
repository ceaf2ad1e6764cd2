"""Publishing to the Hub, an object store and a folder: one behaviour, and what each of them does in its own way."""

from __future__ import annotations

import logging
import re
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from casebits_dagster.publication.publication import Publication
from casebits_dagster.publication.publish import Published, _FileShelf, publish, publish_to
from casebits_dagster.records.errors import CasebitsError, Conflict, Refused
from casebits_dagster.records.frontier import Latest
from casebits_dagster.records.layout import LATEST, Home
from casebits_dagster.stores.base import WritableStore
from casebits_dagster.stores.hub import Patience
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stores.object import object_store
from tests.publication.chain import Chain, cover, generation_publication, kept, mix_publication, require_consumable
from tests.stores.conftest import TOKEN, contract_server, s3_server, s3_url, serving  # noqa: F401
from tests.stores.hub_server import Fault, HubServer

REPO = "nobody/made"
QUICK = Patience(attempts=4, pause=0.0, longest_pause=0.0, timeout=60.0)


@pytest.fixture
def server(contract_server: HubServer) -> HubServer:  # noqa: F811  # that is how a fixture asks for another
    return contract_server


@dataclass
class Place:
    """A destination, and what lies there."""

    url: str
    store: WritableStore | None = None
    server: HubServer | None = None
    said: list[str] = field(default_factory=list)

    def publish(self, publication: Publication) -> Published:
        return publish(publication, self.url, say=self.said.append, patience=QUICK)

    def read(self, path: str, revision: str = "") -> bytes | None:
        if self.server:
            commit = self.server.hub.repos[REPO].at(revision or "main") if REPO in self.server.hub.repos else None
            return commit.tree[path].content if commit and path in commit.tree else None
        return self.store.get(path) if self.store and self.store.exists(path) else None

    def write(self, path: str, content: bytes | None) -> None:
        """Put other bytes, or none, under a name, as nobody but a stranger does."""
        if self.server:
            repo = self.server.hub.repos[REPO]
            tree = {name: file for name, file in repo.head.tree.items() if name != path}
            repo.add("by hand", tree if content is None else {**tree, path: self.server.hub.large(content)})
        elif isinstance(self.store, LocalStore) and content is None:
            self.store.local(path).unlink()
        elif self.store and content is not None:
            self.store.replace(path, self.read(path), content)

    def latest(self) -> Latest:
        return Latest.parse(self.read(LATEST) or b"", LATEST)


@pytest.fixture
def hub(server: HubServer) -> Place:
    return Place(f"hf://datasets/{REPO}", server=server)


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "published"), LocalStore(tmp_path / "published"))


@pytest.fixture(params=["hub", "folder", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param != "s3":
        found: Place = request.getfixturevalue(request.param)
        return found
    url = request.getfixturevalue("s3_url")
    return Place(url, object_store(url))


def refusal(place: Place, publication: Publication) -> str:
    with pytest.raises(CasebitsError) as caught:
        place.publish(publication)
    return str(caught.value).replace(place.url, "PLACE")


def test_a_generation_is_published_whole(place: Place, sample_home: Home) -> None:
    publication = generation_publication(sample_home, "sample")
    done = place.publish(publication)
    files = [file for batch in publication.batches for file in batch]
    assert (done.changed, done.sent_files) == (True, len(files))
    assert (done.sent_bytes, done.latest) == (sum(file.bytes for file in files), place.latest())
    assert done.revision == place.latest().manifest.revision
    assert require_consumable(place.read) == 1
    regions, size = place.latest().count, done.sent_bytes / 1e6
    assert [re.sub(r"[\d.]+ MB/s", "N MB/s", line) for line in place.said][-2:] == [
        f"{regions} of {regions} regions, {len(files)} of {len(files)} files, {size:.1f} of {size:.1f} MB are there "
        f"({sum(file.bytes for file in publication.batches[-1]) / 1e6:.1f} MB at N MB/s)",
        f"LATEST.json at {place.url} names version 1",
    ]
    assert len(place.said) == len(publication.batches) + 1
    assert [place.read(file.path) for file in cover(done.latest)] == [file.content for file in cover(done.latest)]


def test_what_is_there_is_not_sent_again(place: Place, tmp_path: Path) -> None:
    chain = Chain()
    place.publish(chain.grow("a", tmp_path / "files"))
    second = chain.grow("b", tmp_path / "files")
    done = place.publish(second)
    # Seven of the region and a manifest; where nothing vouches for it, what lies beside the regions is compared.
    assert (done.changed, done.sent_files) == (True, 8)
    assert (require_consumable(place.read), place.latest().count) == (2, 2)
    before = place.read(LATEST)
    later = replace(second, latest=lambda at: replace(second.latest(at), published_at="2027-01-02T03:04:05Z"))
    for publication in (second, later):
        done = place.publish(publication)
        assert (done.changed, done.sent_files, place.read(LATEST)) == (False, 0, before)


def test_a_later_expiry_is_a_reason_to_write_latest_again(place: Place) -> None:
    publication = Chain().grow("a")
    place.publish(publication)
    expiring = replace(
        publication, latest=lambda at: replace(publication.latest(at), expires_at="2027-01-01T00:00:00Z")
    )
    done = place.publish(expiring)
    assert (done.changed, done.sent_files, place.latest().expires_at) == (True, 0, "2027-01-01T00:00:00Z")
    assert require_consumable(place.read) == 1


def test_a_card_that_is_gone_or_old_is_written_again(place: Place) -> None:
    publication = Chain().grow("a")
    place.publish(publication)
    card, latest = place.read("README.md"), place.read(LATEST)
    place.write("README.md", b"---\nold: 1\n---\n")
    done = place.publish(publication)
    assert (done.changed, place.read("README.md"), place.read(LATEST)) == (True, card, latest)


def test_an_older_version_that_the_published_one_contains_is_there_already(place: Place) -> None:
    chain = Chain()
    first, second = chain.grow("a"), chain.grow("b")
    place.publish(second)
    before = place.read(LATEST)
    done = place.publish(first)
    assert (done.changed, done.sent_files, done.latest.version, place.read(LATEST)) == (False, 0, 2, before)
    assert place.said[-1] == f"{place.url} has version 2, which contains this one"


def test_what_is_no_earlier_or_later_state_is_refused(place: Place) -> None:
    chain, other = Chain(), Chain()
    first, second = chain.grow("a"), chain.grow("b")
    others = [other.grow("x"), other.grow("y"), other.grow("z")]
    place.publish(second)
    before, remedy = place.read(LATEST), "(find out who published what, and from where)"
    mine, theirs = [version.manifest_sha256 for version in others], second.manifest_sha256
    assert refusal(place, others[0]) == (
        "EQUIVOCATION PLACE/LATEST.json: its version 2 does not contain this version 1, "
        f"expected {mine[0]}, read {first.manifest_sha256} {remedy}"
    )
    assert refusal(place, others[1]) == (
        "EQUIVOCATION PLACE/LATEST.json: it names another version 2 than this one, "
        f"expected {mine[1]}, read {theirs} {remedy}"
    )
    assert refusal(place, others[2]) == (
        "HISTORY_REWRITTEN PLACE/LATEST.json: its version 2 is not an earlier one of this, "
        f"expected {mine[1]}, read {theirs} {remedy}"
    )
    assert refusal(place, replace(others[2], batches=())) == (
        "HISTORY_REWRITTEN PLACE/LATEST.json: its version 2 is not an earlier one of this, "
        f"expected no such version, read {theirs} {remedy}"
    )
    assert refusal(place, replace(first, name="sample")) == (
        "GENERATION_MISMATCH PLACE/LATEST.json: expected sample, read made"
    )
    assert refusal(place, mix_publication(1, "text")).startswith("SCHEMA_UNKNOWN PLACE/LATEST.json: schema: ")
    assert (place.read(LATEST), require_consumable(place.read)) == (before, 2)


def test_an_older_version_that_nobody_knows_is_a_rollback(hub: Place) -> None:
    chain = Chain()
    first, second = chain.grow("a"), chain.grow("b")
    hub.publish(second)
    hub.write("frontier/manifests/00000001.json", None)
    assert refusal(hub, first) == (
        "ROLLBACK PLACE/LATEST.json: its version 2 does not contain this version 1, "
        f"expected {first.manifest_sha256}, read no such version (find out who published what, and from where)"
    )


def test_other_bytes_under_a_name_are_left_and_refused(place: Place) -> None:
    chain = Chain()
    place.publish(chain.grow("a"))
    second = chain.grow("b")
    path = second.batches[0][7].path
    place.write(path, b"other")
    before = place.read(LATEST)
    with pytest.raises(Conflict) as caught:
        place.publish(second)
    remedy = "(what is published is never overwritten; a change is a new name)"
    assert str(caught.value) == f"STORE_CONFLICT {path}: other bytes are published {remedy}"
    assert (place.read(path), place.read(LATEST)) == (b"other", before)


@pytest.mark.parametrize("name", ["casebits_mixture.ids.u16le", "receipt.json"])
def test_a_local_file_that_changed_is_not_sent(place: Place, tmp_path: Path, name: str) -> None:
    publication = Chain().grow("a", tmp_path / "files")
    file = next(file for file in publication.batches[0] if file.path.endswith(name))
    assert isinstance(file.content, Path)
    content = file.content.read_bytes()
    file.content.write_bytes(content[::-1])
    assert refusal(place, publication).startswith(f"FILE_HASH {file.path}: expected sha256 {file.sha256}, read ")
    file.content.unlink()
    assert refusal(place, publication) == f"FILE_MISSING {file.path}: {file.content} is gone"
    assert place.read(LATEST) is None
    file.content.write_bytes(content)
    assert (place.publish(publication).changed, require_consumable(place.read)) == (True, 1)


def test_a_mix_is_published_by_the_same_rules(place: Place) -> None:
    first, second = mix_publication(1, "one"), mix_publication(2, "two")
    assert [place.publish(mix).changed for mix in (first, first, second)] == [True, False, True]
    assert place.publish(first).latest.version == 2
    shards = [place.read(mix.batches[0][0].path) for mix in (first, second)]
    assert shards == [b"one", b"two"]
    assert refusal(place, mix_publication(2, "three")).startswith("EQUIVOCATION PLACE/LATEST.json: ")
    assert refusal(place, mix_publication(1, "three")).startswith("ROLLBACK PLACE/LATEST.json: ")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "hf://buckets/nobody/made",
            "STORE_NO_CAS hf://buckets/nobody/made: a bucket has neither versions nor conditions, so two publishers "
            "would undo each other (publish to hf://datasets/OWNER/NAME)",
        ),
        (
            "hf://datasets/nobody/made@main",
            "PATH_UNSAFE destination: expected a folder, s3://bucket/prefix or hf://datasets/OWNER/NAME, "
            "read hf://datasets/nobody/made@main",
        ),
    ],
)
def test_trap_6_only_what_has_versions_or_conditions_is_published_to(url: str, message: str) -> None:
    with pytest.raises(CasebitsError) as caught:
        publish(Chain().grow("a"), url)
    assert str(caught.value) == message


# The Hub.


def commits(server: HubServer) -> list[str]:
    return [commit.title for commit in server.hub.repos[REPO].commits.values()]


def test_a_publication_is_batches_and_one_more_commit(hub: Place, server: HubServer, tmp_path: Path) -> None:
    chain = Chain()
    for _ in range(13):
        publication = chain.grow("a", tmp_path / "files")
    hub.publish(publication)
    assert commits(server) == [
        "initial commit",
        "made version 13: 84 files",
        "made version 13: 7 files",
        "made version 13: 14 files",
        "made version 13",
    ]
    history = list(server.hub.repos[REPO].commits.values())
    assert hub.latest().manifest.revision == history[-2].id
    assert {LATEST, "README.md", "ATTRIBUTION.md"} & history[-2].tree.keys() == set()
    assert require_consumable(hub.read) == 13


def test_a_dataset_is_made_private_unless_told_otherwise(hub: Place, server: HubServer) -> None:
    hub.publish(Chain().grow("a"))
    assert server.hub.repos[REPO].private is True
    server.clear()
    publish(Chain().grow("a"), hub.url, private=False, say=hub.said.append)
    assert server.hub.repos[REPO].private is False


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_was_cut_off_is_completed_by_the_next_run(hub: Place, server: HubServer, number: int) -> None:
    """Between the batches, and between the last of them and LATEST."""
    publication = Chain().grow("a")
    server.faults = [*[Fault(stage="commit", closed="after")] * (number - 1), *[Fault(stage="commit", status=401)]]
    assert refusal(hub, publication).startswith("STORE_FORBIDDEN ")
    assert (hub.read(LATEST), len(commits(server))) == (None, number)
    server.asked.clear()
    done = hub.publish(publication)
    assert (done.changed, server.count("commit"), require_consumable(hub.read)) == (True, 4 - number, 1)
    assert len(commits(server)) == 4


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lost_race_is_built_anew_on_the_winners_commit(hub: Place, server: HubServer, number: int) -> None:
    publication, won = Chain().grow("a"), list[str]()

    def overtake() -> None:
        hub.write("theirs", b"")
        won.append("theirs")

    hub.publish(replace(publication, batches=(), cover=lambda _: ()))
    hub.write(LATEST, None)
    server.asked.clear()
    stage: Any = "preupload"
    server.faults = [Fault(stage=stage)] * (number - 1) + [Fault(stage=stage, then=overtake)]
    done = hub.publish(publication)
    assert (done.changed, won, require_consumable(hub.read)) == (True, ["theirs"], 1)
    assert server.count("commit") == 4


def test_of_two_publishers_of_two_versions_the_later_one_stands(hub: Place, server: HubServer) -> None:
    chain = Chain()
    first, second = chain.grow("a"), chain.grow("b")
    hub.publish(replace(first, cover=lambda _: ()))
    hub.write(LATEST, None)

    def overtake() -> None:
        hub.publish(second)

    server.faults = [Fault(stage="preupload", then=overtake)]
    done = hub.publish(first)
    assert (done.changed, done.latest.version, hub.latest().version) == (False, 2, 2)
    assert require_consumable(hub.read) == 2


def test_races_that_are_always_lost_are_given_up(
    hub: Place, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("casebits_dagster.publication.publish._LOST_RACES", 2)
    server.faults = [Fault(stage="commit", status=412)] * 2
    assert refusal(hub, Chain().grow("a")) == (
        "STORE_CONFLICT PLACE: others published first, 2 times in a row (try again)"
    )


def test_the_token_is_told_nowhere(hub: Place, server: HubServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told, publication = list[str](), Chain().grow("a")
    for stage in ("info", "create", "tree", "preupload", "batch", "upload", "verify", "commit", "paths", "yaml"):
        server.faults = [Fault(stage=stage, status=403)]
        try:
            told.append(repr(hub.publish(publication)))
        except Refused:
            told.append(traceback.format_exc())
    hub.publish(publication)
    published = [file.content.decode("latin-1") for file in server.files.values()]
    assert {asked.authorization for asked in server.asked} == {f"Bearer {TOKEN}", None}
    assert [text for text in (*told, *hub.said, *commits(server), *published, caplog.text) if TOKEN in text] == []


# Folders.


@pytest.mark.parametrize("moved", ["before", "after"])
def test_neither_latest_nor_a_card_is_written_over_those_of_a_later_version(folder: Place, moved: str) -> None:
    """The later version is published whole, before this one moves LATEST or before it then writes its card."""
    chain = Chain()
    first, second = chain.grow("a"), chain.grow("b")
    overtaken = list[Published]()

    class Overtaken(LocalStore):
        def replace(self, path: str, expected: bytes | None, content: bytes) -> bool:
            if (moved, path) == ("before", LATEST):
                overtaken.append(folder.publish(second))
            done = super().replace(path, expected, content)
            if (moved, path) == ("after", LATEST):
                overtaken.append(folder.publish(second))
            return done

    shelf = _FileShelf(Overtaken(Path(folder.url)))
    done = publish_to(shelf, first, folder.url, folder.said.append)
    assert ([made.latest.version for made in overtaken], done.latest.version, done.changed) == ([2], 2, False)
    assert folder.read("README.md") == cover(folder.latest())[0].content
    assert require_consumable(folder.read) == 2


def test_files_that_are_gone_from_a_folder_are_put_again(folder: Place) -> None:
    chain = Chain()
    first = chain.grow("a")
    folder.publish(first)
    folder.write(first.batches[0][3].path, None)
    done = folder.publish(chain.grow("b"))
    assert (done.sent_files, require_consumable(folder.read)) == (9, 2)


def test_what_latest_does_not_vouch_for_is_compared(folder: Place) -> None:
    chain = Chain()
    first = chain.grow("a")
    gates = kept("gates/00000001.0123456789abcdef.json", b"{}")
    folder.publish(first)
    with_gates = replace(first, batches=(*first.batches, (gates,)))
    assert folder.publish(with_gates).sent_files == 1
    assert folder.read(gates.path) == b"{}"

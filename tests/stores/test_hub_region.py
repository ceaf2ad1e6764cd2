"""A region whose source lies on the Hub: filtered, encoded and admitted through the real client and store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pyarrow.parquet as pq
import pytest

from casebits_dagster.admission import admit_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import CasebitsError, Refused
from casebits_dagster.records.layout import Home
from casebits_dagster.records.pins import Generation, Source, SourceFile, load_generation
from casebits_dagster.records.region import Admission, Receipt
from casebits_dagster.regions.encode import encode_region
from casebits_dagster.stores.hub import HubStore
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stores.source import published_sha256, source_store
from tests.stores.hub_server import Fault, HubServer, hub_server

Declare: TypeAlias = "Callable[[Path, Path, HubServer], Generation]"
REPO, REVISION, ROWS = "nobody/texts", "0123456789" * 4, 220


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with hub_server() as serving:
        monkeypatch.setenv("HF_ENDPOINT", serving.endpoint)
        yield serving


def _pin(pins: Path, folder: Path, source: str, regions: str) -> Generation:
    """Declare generation `hub`: the sample's policy and codec, on a dataset of the Hub."""
    (folder / "generations").mkdir(parents=True)
    for name in ("filters", "codecs"):
        (folder / name).symlink_to(pins / name)
    sample = (pins / "generations/sample.toml").read_text().replace('generation = "sample"', 'generation = "hub"')
    head, rest = sample.split("[source]")
    split = rest[rest.index("[split]") : rest.index("# Region 8")]
    fixed = 'licence_spdx = "CC0-1.0"\ntitle = "Texts"\nurl = "https://example.org"\nchanges = "none"'
    named = f'[source]\nrepo = "{REPO}"\nrepo_type = "dataset"\nrevision = "{REVISION}"\n{fixed}\n{source}\n'
    (folder / "generations/hub.toml").write_text(f"{head}{named}{split}{regions}")
    return load_generation(folder, "hub")


def _parquet(pins: Path, folder: Path, server: HubServer) -> Generation:
    content = (pins / "sample/pd_mix.parquet").read_bytes()
    server.put(REPO, REVISION, "parts/a.parquet", content)
    file = f'[[source.files]]\npath = "parts/a.parquet"\nbytes = {len(content)}\nrows = 1358\n'
    regions = f'[[regions]]\npath = "parts/a.parquet"\ncuts = [0, 110, {ROWS}]\n'
    return _pin(pins, folder, f'format = "parquet_tokens"\n{file}', regions)


def _jsonl(pins: Path, folder: Path, server: HubServer) -> Generation:
    rows = pq.read_table(pins / "sample/pd_mix.parquet").slice(0, ROWS).to_pylist()
    lines = [json.dumps({name: row[name] for name in ("cluster_id", "tokens", "token_count")}) for row in rows]
    content = "".join(f"{line}\n" for line in lines).encode()
    server.put(REPO, REVISION, "a.jsonl", content)
    # The first region ends in the middle of row 109, which is its last one.
    cut = sum(len(line) + 1 for line in lines[:109]) + 7
    file = f'[[source.files]]\npath = "a.jsonl"\nbytes = {len(content)}\n'
    regions = f'[[regions]]\npath = "a.jsonl"\ncuts = [0, {cut}, {len(content)}]\n'
    return _pin(pins, folder, f'format = "climbmix_jsonl"\n{file}', regions)


@pytest.mark.parametrize("declare", [_parquet, _jsonl])
def test_a_region_from_the_hub_is_that_of_a_folder(
    declare: Declare, server: HubServer, pins: Path, sample_home: Home, home: Home, tmp_path: Path
) -> None:
    """With setbacks on the way; the receipt holds the hash of the range and the published one of the file."""
    generation = declare(pins, tmp_path / "pins", server)
    path = generation.source.files[0].path
    content = server.files[REPO, REVISION, path].content
    for index in (0, 1):
        server.faults = [Fault(stage="storage", cut=1000), Fault(stage="read", status=503)]
        filter_region(generation, index, home)
        receipt: Receipt = encode_region(generation, index, home).receipt
        assert server.faults == []
        server.faults = [Fault(stage="storage", cut=2000)]
        admission: Admission = admit_region(generation, index, home, run_id="run").admission
        assert server.faults == []
        source = receipt.source
        assert (source.repo, source.repo_type, source.revision, source.path) == (REPO, "dataset", REVISION, path)
        assert (source.file_bytes, source.file_sha256) == (len(content), sha256(content))
        assert source.range_sha256 == admission.source_recheck.range_sha256
        if source.unit == "bytes":
            assert source.range_sha256 == sha256(content[source.begin : source.end])
        folder = sample_home.generation("sample").region(index)
        same = Receipt.parse((folder / "receipt.json").read_bytes(), "receipt.json")
        assert [file for file in receipt.files if file.dtype != "jsonl"] == [
            file for file in same.files if file.dtype != "jsonl"
        ]
    assert server.count("look") == 1


def test_a_region_is_read_once_to_be_made_and_once_to_be_proven(
    server: HubServer, pins: Path, home: Home, tmp_path: Path
) -> None:
    generation = _jsonl(pins, tmp_path / "pins", server)

    def fetched() -> int:
        ranges = [asked.range or "" for asked in server.asked if asked.stage == "storage"]
        server.asked.clear()
        return sum(int(end) - int(begin) + 1 for begin, end in (text[6:].split("-") for text in ranges))

    filter_region(generation, 0, home)
    region = generation.plan[0].end
    made = fetched()
    encode_region(generation, 0, home)
    again = fetched()
    admit_region(generation, 0, home, run_id="run")
    proven = fetched()
    tail = 1 << 20  # past the end of the range, for the line that crosses it
    assert (region <= made <= region + tail, again, region <= proven <= region + tail) == (True, 0, True)


def test_a_source_is_read_where_it_is_pinned_to_be(server: HubServer, pins: Path, tmp_path: Path) -> None:
    source = _parquet(pins, tmp_path / "pins", server).source
    store = source_store(source)
    assert (type(store), store) == (HubStore, source_store(source))
    folder = load_generation(pins, "sample").source
    assert type(source_store(folder)) is LocalStore
    file = folder.file("pd_mix.parquet")
    assert (published_sha256(source, "parts/a.parquet"), published_sha256(folder, "pd_mix.parquet")) == (
        file.sha256,
        file.sha256,
    )


def test_a_pinned_hash_is_compared_with_the_published_one(server: HubServer, pins: Path, tmp_path: Path) -> None:
    _parquet(pins, tmp_path / "pins", server)
    path = tmp_path / "pins/generations/hub.toml"
    path.write_text(path.read_text().replace("rows = 1358\n", f'rows = 1358\nsha256 = "{"0" * 64}"\n'))
    with pytest.raises(Refused) as caught:
        published_sha256(load_generation(tmp_path / "pins", "hub").source, "parts/a.parquet")
    published = load_generation(pins, "sample").source.files[0].sha256
    assert str(caught.value) == (f"SOURCE_PIN {REPO}/parts/a.parquet: expected sha256 {'0' * 64}, read {published}")


def test_a_small_file_is_known_by_its_pinned_hash_alone(server: HubServer, pins: Path, tmp_path: Path) -> None:
    source = _jsonl(pins, tmp_path / "pins", server).source
    server.put(REPO, REVISION, "small.jsonl", b"", large=False)
    unpinned = SourceFile(path="small.jsonl", bytes=1)
    small = Source(source.pin, source.pins_folder, (unpinned,))
    with pytest.raises(CasebitsError) as caught:
        published_sha256(small, "small.jsonl")
    assert str(caught.value) == "SOURCE_PIN small.jsonl: no hash is pinned or published"

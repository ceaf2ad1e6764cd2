"""Prove a mix from its files: every token of every stream against the admitted source slice that the plan names.

Guarantees: shares no code with selection, planner and writer (records and numpy only), reads manifests and regions
itself, and takes nothing from the report that it does not recount. Refuses with one code: those of the closed list for
files and frontiers, `MIX_...` for what only a mix can get wrong.
Costs: one read and one hash of every file of the mix and of every region file it uses.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing import verify_tables as rules
from casebits_dagster.mixing.verify_sources import PinnedFrontier, read_array, require_file
from casebits_dagster.mixing.verify_tables import Table, fail
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import (
    DOCUMENT_FIELDS,
    MANIFEST,
    MANIFEST_HEAD,
    NEXT,
    README,
    RECIPE,
    REPORT,
    SEGMENT_FIELDS,
    SEGMENTS,
    SELECTED,
    STREAMS,
    TABLE,
    TRAIN,
    VALIDATION,
    MixReport,
    SplitFiles,
    shard_name,
    val_name,
)
from casebits_dagster.records.recipe import Recipe

_LINE = re.compile(r"([0-9a-f]{64})  (\d+)  ([A-Za-z0-9_][A-Za-z0-9_.-]*)")
_KEYS = ("generation", "region", "index", "tokens")
_TABLES = (SEGMENTS, TABLE, val_name(SEGMENTS), val_name(TABLE))
_NEXT = {stream: f"{NEXT}.{suffix}" for stream, suffix in STREAMS.items()}
_REQUIRED = {*_TABLES, *_NEXT.values(), SELECTED, REPORT, RECIPE, README}


@dataclass(frozen=True, slots=True)
class MixCheck:
    """A rule that held, by the code it would have refused with, and how many things it examined."""

    id: str
    examined: int


@dataclass(frozen=True, slots=True)
class VerifiedMix:
    folder: Path
    manifest_sha256: str
    report: MixReport
    checks: tuple[MixCheck, ...]


@dataclass(frozen=True, slots=True)
class _Split:
    """One split's tables, and the window and place in it of every run."""

    name: str
    files: SplitFiles
    length: int
    per_shard: int
    rows: Table
    documents: Table


def verify_mix(folder: Path, home: Home) -> VerifiedMix:
    """Return what was proven of the mix in `folder`, made from frontiers under `home`, or raise the first refusal."""
    manifest_sha256, files = _check_files(folder)
    report = MixReport.parse((folder / REPORT).read_bytes(), REPORT)
    _check_recipe(folder, report)
    frontiers = [PinnedFrontier(source, home) for source in report.sources]
    train, validation = _split(folder, report, TRAIN), _split(folder, report, VALIDATION)
    _check_tables(report, train, validation, frontiers)
    _check_earlier(folder, report, train, home)
    _check_names(files, train, validation)
    tokens = [_check_streams(folder, split, frontiers, report) for split in (train, validation)]
    _check_next(folder, train, frontiers, report)
    _check_loss_reference(folder, train, report)
    documents, rows = len(train.documents) + len(validation.documents), len(train.rows) + len(validation.rows)
    counted = {
        "FILE_HASH": len(files),
        "MANIFEST_HASH": len(frontiers),
        "MIX_DOCUMENT": documents,
        "MIX_SPLIT": documents,
        "MIX_EPOCHS": len(train.documents),
        "MIX_SEGMENTS": rows,
        "MIX_ALIGNMENT": len(train.rows) if report.recipe.strategy == "aligned" else 0,
        "MIX_CUT": len(train.documents),
        "MIX_TOKENS": sum(tokens),
        "MIX_CASES": sum(tokens),
        "MIX_SEPARATOR": sum(tokens),
        "MIX_NEXT": train.files.windows,
        "MIX_CONSERVATION": 1,
        "MIX_CONTEXT": len(report.context),
        "MIX_TARGETS": len(report.selection.cells),
    }
    checks = tuple(MixCheck(code, count) for code, count in counted.items() if count)
    return VerifiedMix(folder, manifest_sha256, report, checks)


def _check_files(folder: Path) -> tuple[str, set[str]]:
    """The folder holds exactly the files of its manifest, with their sizes and hashes."""
    path = folder / MANIFEST
    if not path.is_file():
        raise Refused("MANIFEST_MISSING", str(path), "not a mix")
    raw = path.read_bytes()
    lines = raw.decode("utf-8", "replace").split("\n")
    found = [_LINE.fullmatch(line) for line in lines[1:-2]]
    matched = [line for line in found if line is not None]
    total = sum(int(line[2]) for line in matched)
    names = [line[3] for line in matched]
    whole = (
        lines[0] == MANIFEST_HEAD
        and len(matched) == len(found)
        and lines[1:-2] == sorted(lines[1:-2])
        and len({name.lower() for name in names}) == len(names)
        and lines[-2:] == [f"# end {len(names)} {total}", ""]
    )
    if not whole:
        fail("MIX_MANIFEST", str(path), "is not a complete, sorted list of safe names")
    extra = {entry.name for entry in folder.iterdir()} - {*names, MANIFEST}
    if extra:
        raise Refused("FILE_EXTRA", str(folder / min(extra)), "is not in MANIFEST.txt")
    missing = _REQUIRED - set(names)
    if missing:
        raise Refused("FILE_MISSING", str(folder / min(missing)), "is not in MANIFEST.txt")
    for line in matched:
        require_file(folder / line[3], int(line[2]), line[1])
    return sha256(raw), set(names)


def _check_recipe(folder: Path, report: MixReport) -> None:
    raw = (folder / RECIPE).read_bytes()
    recipe = Recipe.parse(raw, RECIPE)
    recipe.check(RECIPE)
    if recipe != report.recipe or sha256(raw) != report.recipe_sha256:
        fail("MIX_RECIPE", RECIPE, "is not the recipe of the report")


def _split(folder: Path, report: MixReport, name: str) -> _Split:
    files = report.train if name == TRAIN else report.validation
    tables = []
    for table, fields in ((SEGMENTS, SEGMENT_FIELDS), (TABLE, DOCUMENT_FIELDS)):
        table = table if name == TRAIN else val_name(table)
        found = _load(folder / table)
        if found.dtype != np.dtype(fields) or found.ndim != 1:
            fail("MIX_TABLE", table, expected=fields, read=found.dtype)
        tables.append(found)
    rows, documents = tables
    if (len(rows), len(documents)) != (files.segments, files.documents):
        read = (len(rows), len(documents))
        fail("MIX_TABLE", name, "segments and documents", expected=(files.segments, files.documents), read=read)
    return _Split(name, files, report.recipe.sequence_length, report.recipe.windows_per_shard, rows, documents)


def _load(path: Path) -> Any:
    """Return a `.npy` or `.npz` that numpy reads without running code."""
    try:
        with path.open("rb") as stream:
            found = np.load(stream, allow_pickle=False)
            return found if isinstance(found, np.ndarray) else dict(found)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        fail("MIX_TABLE", path.name, f"cannot be read: {error}")


def _check_tables(report: MixReport, train: _Split, validation: _Split, frontiers: list[PinnedFrontier]) -> None:
    recipe, selection = report.recipe, report.recipe.selection
    rules.check_documents(TABLE, train.documents, frontiers, validation=False)
    rules.check_documents(val_name(TABLE), validation.documents, frontiers, validation=True)
    if selection is not None:
        rules.check_domains(TABLE, train.documents, frontiers, selection)
    rules.check_uses(train.documents, selection)
    rules.check_segments(SEGMENTS, train.rows, train.documents, train.files.windows, train.length)
    val_segments = val_name(SEGMENTS)
    rules.check_segments(
        val_segments, validation.rows, validation.documents, validation.files.windows, validation.length
    )
    rules.lost_of_documents(val_segments, validation.rows, validation.documents)
    lost = rules.lost_of_documents(SEGMENTS, train.rows, train.documents)
    if recipe.aligned is not None:
        rules.check_alignment(train.rows, train.documents, train.length, recipe.aligned.tails)
    rules.check_cuts(report, lost)
    rules.check_conservation(report, train.rows, train.documents, lost)
    rules.check_tails(report, train.rows, train.documents)
    rules.check_context(report, train.rows, train.documents)
    rules.check_targets(report, train.documents)


def _check_earlier(folder: Path, report: MixReport, train: _Split, home: Home) -> None:
    """The selected keys are those of the table; a control has its mix's documents, an exclusion none of them."""
    ids = set(map(bytes, train.documents["id"]))
    selected = _load(folder / SELECTED)
    if set(selected) != {"id", *_KEYS} or _keys(selected) != _keys(train.documents):
        fail("MIX_SELECTED", SELECTED, "does not name the documents of the table")
    for earlier in report.mixes:
        path = home.mix(earlier.mix) / MANIFEST
        if not path.is_file() or sha256(path.read_bytes()) != earlier.manifest_sha256:
            fail("MIX_EARLIER", str(path), expected=earlier.manifest_sha256, read="another mix, or none")
        same = (
            earlier.role != "documents_of"
            or _load(home.mix(earlier.mix) / TABLE).tobytes() == train.documents.tobytes()
        )
        if not same:
            fail("MIX_EARLIER", TABLE, f"documents are not those of {earlier.mix}")
        if earlier.role == "exclude":
            both = ids & set(map(bytes, _load(home.mix(earlier.mix) / SELECTED)["id"]))
            if both:
                fail("MIX_EXCLUDED", f"{TABLE}: id {min(both).hex()}", f"stands in the excluded mix {earlier.mix}")


def _keys(rows: Any) -> set[tuple[Any, ...]]:
    return set(zip(map(bytes, rows["id"]), *(rows[field].tolist() for field in _KEYS), strict=False))


def _check_names(files: set[str], train: _Split, validation: _Split) -> None:
    """Shards are numbered without a gap, both streams each."""
    expected = {
        shard_name(split.name, shard, stream)
        for split in (train, validation)
        for shard in range(-(-split.files.windows // split.per_shard))
        for stream in STREAMS
    }
    read = {name for name in files if re.match(rf"({TRAIN}|{VALIDATION})_\d", name)}
    if read != expected:
        fail("MIX_SHARD", min(read ^ expected), expected=f"{len(expected)} shard files", read=len(read))


def _check_streams(folder: Path, split: _Split, frontiers: list[PinnedFrontier], report: MixReport) -> int:
    """Compare every position of every shard; return how many positions a stream has, each counted once."""
    covered = 0
    for shard in range(split.files.shards):
        begin = shard * split.per_shard * split.length
        last = shard == split.files.shards - 1
        items = split.files.file_tokens - begin if last else split.per_shard * split.length + 1
        streams = {stream: read_array(folder / shard_name(split.name, shard, stream), "<u2") for stream in STREAMS}
        for stream, content in streams.items():
            if len(content) != items:
                fail("MIX_SHARD", shard_name(split.name, shard, stream), "tokens", expected=items, read=len(content))
        end = 0
        for number, document, start, place, run in _runs(split, shard, last):
            _compare(split, shard, streams, report, frontiers, (number, document, start, place, run))
            end = place + run
        covered += end
        if last and end == items:
            continue
        following = [report.separator.id, 0]
        if not last:
            following = [int(read_array(folder / shard_name(split.name, shard + 1, s), "<u2")[0]) for s in STREAMS]
        read = [int(content[end]) for content in streams.values()]
        if items != end + 1 or read != following:
            where = f"{shard_name(split.name, shard, 'ids')} at {end}"
            fail("MIX_SEPARATOR", where, "token after the last window", expected=following, read=read)
    return covered


def _runs(split: _Split, shard: int, last: bool) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield row, document, document_start, place in the shard and length of each run of a shard."""
    windows = split.rows["window"]
    begin = int(np.searchsorted(windows, shard * split.per_shard))
    end = len(windows) if last else int(np.searchsorted(windows, (shard + 1) * split.per_shard))
    rows = split.rows[begin:end]
    places = (rows["window"].astype(np.int64) - shard * split.per_shard) * split.length + rows["position"]
    columns = (rows["document"].tolist(), rows["document_start"].tolist(), places.tolist(), rows["length"].tolist())
    yield from zip(range(begin, end), *columns, strict=True)


def _compare(
    split: _Split,
    shard: int,
    streams: dict[str, NDArray[Any]],
    report: MixReport,
    frontiers: list[PinnedFrontier],
    run: tuple[int, int, int, int, int],
) -> None:
    number, document, start, place, length = run
    row = split.documents[document]
    region = frontiers[int(row["generation"])].region(int(row["region"]))
    source = int(region.offsets[int(row["index"])]) + start
    inserted = int(split.rows["inserted"][number])
    expected = {"ids": region.ids, "cases": region.cases}
    for stream, separator in (("ids", report.separator.id), ("cases", 0)):
        read = streams[stream][place : place + length]
        want = expected[stream][source : source + length - inserted]
        if inserted:
            want = np.concatenate([np.array([separator], "<u2"), want])
        if np.array_equal(read, want):
            continue
        at = int(np.flatnonzero(read != want)[0])
        is_separator = expected["ids"][source + at - inserted] == report.separator.id or at < inserted
        code = "MIX_SEPARATOR" if is_separator else {"ids": "MIX_TOKENS", "cases": "MIX_CASES"}[stream]
        window, position = divmod(shard * split.per_shard * split.length + place + at, split.length)
        where = f"{shard_name(split.name, shard, stream)}: window {window} position {position}, document {document}"
        fail(code, where, f"row {number} of the segments", expected=int(want[at]), read=int(read[at]))


def _check_next(folder: Path, train: _Split, frontiers: list[PinnedFrontier], report: MixReport) -> None:
    """`next` holds the token that truly follows each window, the separator where the document ends (MIX_NEXT)."""
    streams = {stream: read_array(folder / name, "<u2") for stream, name in _NEXT.items()}
    for stream, content in streams.items():
        if len(content) != train.files.windows:
            fail("MIX_NEXT", _NEXT[stream], expected=train.files.windows, read=len(content))
    for row in train.rows:
        window = int(row["window"])
        if window >= train.files.windows or int(row["position"]) + int(row["length"]) != train.length:
            continue
        document = train.documents[row["document"]]
        region = frontiers[int(document["generation"])].region(int(document["region"]))
        after = int(row["document_start"]) + int(row["length"]) - int(row["inserted"])
        place = int(region.offsets[int(document["index"])]) + after
        ended = after == int(document["tokens"])
        expected = (report.separator.id, 0) if ended else (int(region.ids[place]), int(region.cases[place]))
        read = (int(streams["ids"][window]), int(streams["cases"][window]))
        if read != expected:
            fail("MIX_NEXT", f"window {window}", "id and mask", expected=expected, read=read)


def _check_loss_reference(folder: Path, train: _Split, report: MixReport) -> None:
    """The reference points are ln(V) and the entropy of the ids in the windows, to 5 digits (MIX_LOSS_REFERENCE)."""
    counts = np.zeros(1 << 16, np.int64)
    for shard in range(train.files.shards):
        windows = min(train.per_shard, train.files.windows - shard * train.per_shard)
        content = read_array(folder / shard_name(TRAIN, shard, "ids"), "<u2")
        counts += np.bincount(content[: windows * train.length], minlength=1 << 16)
    shares = counts[counts > 0] / counts.sum()
    said = report.loss_reference
    for field, value in (
        ("uniform_nats", math.log(said.vocabulary_size)),
        ("unigram_nats", float(-(shares * np.log(shares)).sum())),
    ):
        if abs(float(getattr(said, field)) - value) > 1e-5:
            fail("MIX_LOSS_REFERENCE", f"loss_reference.{field}", expected=f"{value:.6f}", read=getattr(said, field))

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing import verify_tables as rules
from casebits_dagster.mixing.verify_loss import check_bigram
from casebits_dagster.mixing.verify_sources import PinnedFrontier, Split, Table, read_array, require_file
from casebits_dagster.mixing.verify_tables import fail
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.gates import CheckedMix, MixCheck
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import (
    DOCUMENT_FIELDS,
    MANIFEST,
    NEXT_NAMES,
    README,
    RECIPE,
    REPORT,
    SEGMENT_FIELDS,
    SEGMENTS,
    SELECTED,
    TABLE,
    TRAIN,
    VALIDATION,
    MixReport,
    shard_name,
    val_name,
)
from casebits_dagster.records.mix_manifest import parse_manifest
from casebits_dagster.records.recipe import Recipe

_KEYS = ("generation", "region", "index", "tokens")
_TABLES = (SEGMENTS, TABLE, val_name(SEGMENTS), val_name(TABLE))
_REQUIRED = {*_TABLES, SELECTED, REPORT, RECIPE, README}
_CODES = {"ids": "MIX_TOKENS", "cases": "MIX_CASES"}
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class VerifiedMix:
    folder: Path
    manifest_sha256: str
    report: MixReport
    checks: tuple[MixCheck, ...]

    def record(self) -> CheckedMix:
        """Return the verdict as it is kept."""
        report, mix = sha256(self.report.to_bytes()), self.report.recipe.mix
        return CheckedMix(mix=mix, manifest_sha256=self.manifest_sha256, report_sha256=report, checks=self.checks)


def verify_mix(folder: Path, home: Home) -> VerifiedMix:
    """Return what was proven of the mix in `folder`, made from frontiers under `home`, or raise the first refusal."""
    manifest_sha256, files = _check_files(folder)
    report = MixReport.parse((folder / REPORT).read_bytes(), REPORT)
    _check_recipe(folder, report)
    _require_names(folder, {*NEXT_NAMES[report.codec].values()} - files)
    frontiers = [PinnedFrontier(report, source, home) for source in report.sources]
    train, validation = (_split(folder, report, name, frontiers) for name in (TRAIN, VALIDATION))
    _check_tables(report, train, validation)
    excluded = _check_earlier(folder, report, train, home)
    rules.check_withdrawn(report, train, validation)
    examined = _check_candidates(report, train, excluded)
    _check_names(files, train, validation)
    counts = _check_streams(folder, train)
    _check_streams(folder, validation)
    _check_next(folder, train)
    _check_loss_reference(counts, report)
    shards = [read_array(folder / _shard(train, shard, "ids"), "<u2") for shard in range(train.shards)]
    check_bigram(shards, report, float(report.loss_reference.unigram_nats))
    documents, rows = len(train.documents) + len(validation.documents), len(train.rows) + len(validation.rows)
    tokens = sum(int(split.rows["length"].sum(dtype=np.int64)) for split in (train, validation))
    counted = {
        "FILE_HASH": len(files),
        "MANIFEST_HASH": len(frontiers),
        "MIX_DOCUMENT": documents,
        "MIX_SPLIT": documents,
        "MIX_EPOCHS": len(train.documents),
        "MIX_SEGMENTS": rows,
        "MIX_ALIGNMENT": len(train.rows) if report.recipe.strategy == "aligned" else 0,
        "MIX_CUT": len(train.documents),
        "MIX_TOKENS": tokens,
        "MIX_CASES": tokens if "cases" in train.streams else 0,
        "MIX_SEPARATOR": tokens,
        "MIX_NEXT": train.files.windows,
        "MIX_WITHDRAWN": documents if report.withdrawn else 0,
        "MIX_CONSERVATION": 1,
        "MIX_CONTEXT": len(report.context),
        "MIX_WINDOWS": train.files.windows,
        "MIX_ORDER": len(report.orders or ()),
        "MIX_TARGETS": len(report.selection.cells),
        "MIX_SUPPLY": examined,
        "MIX_COMPLETE": len(train.documents) if report.recipe.interleaved else 0,
    }
    checks = tuple(MixCheck(id=code, examined=count) for code, count in counted.items() if count)
    return VerifiedMix(folder, manifest_sha256, report, checks)


def _check_files(folder: Path) -> tuple[str, set[str]]:
    """The folder holds exactly the files of its manifest, with their sizes and hashes."""
    path = folder / MANIFEST
    if not path.is_file():
        raise Refused("MANIFEST_MISSING", str(path), "not a mix")
    raw = path.read_bytes()
    files = parse_manifest(raw, str(path))
    extra = {entry.name for entry in folder.iterdir()} - {*files, MANIFEST}
    if extra:
        raise Refused("FILE_EXTRA", str(folder / min(extra)), "is not in MANIFEST.txt")
    _require_names(folder, _REQUIRED - set(files))
    for file in files.values():
        require_file(folder / file.name, file.bytes, file.sha256)
    return sha256(raw), set(files)


def _require_names(folder: Path, missing: set[str]) -> None:
    if missing:
        raise Refused("FILE_MISSING", str(folder / min(missing)), "is not in MANIFEST.txt")


def _check_recipe(folder: Path, report: MixReport) -> None:
    raw = (folder / RECIPE).read_bytes()
    recipe = Recipe.parse(raw, RECIPE)
    recipe.check(RECIPE)
    if recipe != report.recipe or sha256(raw) != report.recipe_sha256:
        fail("MIX_RECIPE", RECIPE, "is not the recipe of the report")


def _split(folder: Path, report: MixReport, name: str, frontiers: list[PinnedFrontier]) -> Split:
    files = report.train if name == TRAIN else report.validation
    split = Split(
        name=name,
        files=files,
        length=report.recipe.sequence_length,
        per_shard=report.recipe.windows_per_shard,
        separator=report.separator.id,
        codec=report.codec,
        rows=_load(folder / (SEGMENTS if name == TRAIN else val_name(SEGMENTS))),
        documents=_load(folder / (TABLE if name == TRAIN else val_name(TABLE))),
        frontiers=frontiers,
    )
    for table, found, fields in ((SEGMENTS, split.rows, SEGMENT_FIELDS), (TABLE, split.documents, DOCUMENT_FIELDS)):
        if found.dtype != np.dtype(fields) or found.ndim != 1:
            fail("MIX_TABLE", split.file(table), expected=fields, read=found.dtype)
    expected, read = (files.segments, files.documents), (len(split.rows), len(split.documents))
    if read != expected:
        fail("MIX_TABLE", name, "segments and documents", expected=expected, read=read)
    return split


def _load(path: Path) -> Any:
    """Return a `.npy` or `.npz` that numpy reads without running code."""
    try:
        with path.open("rb") as stream:
            found = np.load(stream, allow_pickle=False)
            return found if isinstance(found, np.ndarray) else dict(found)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        fail("MIX_TABLE", path.name, f"cannot be read: {error}")


def _check_tables(report: MixReport, train: Split, validation: Split) -> None:
    recipe = report.recipe
    for split in (train, validation):
        rules.check_documents(split)
    if recipe.slices:
        edges = recipe.selection.lengths.edges if recipe.selection else ()
        rules.check_domains(train, recipe.slices, edges)
    if recipe.selection:
        rules.check_uses(train.documents, _caps(recipe))
    for split in (train, validation):
        rules.check_segments(split)
    rules.lost_of_documents(validation)
    lost = rules.lost_of_documents(train)
    if recipe.interleaved is not None:
        rules.check_interleaved(train)
    if recipe.aligned is not None:
        rules.check_alignment(train, recipe.aligned.tails)
    rules.check_cuts(report, lost)
    rules.check_conservation(report, train, lost)
    rules.check_tails(report, train)
    rules.check_context(report, train)
    rules.check_orders(report, train)
    rules.check_window_domains(report, train)
    rules.check_targets(report, train.documents)


def _caps(recipe: Recipe) -> NDArray[np.int64]:
    """Return how often a text may be used, by domain and length bucket."""
    if recipe.selection is None:
        return np.ones((len(recipe.slices), 1), np.int64)
    buckets = len(recipe.selection.lengths.edges) + 1
    return np.array([domain.epoch_caps(buckets) for domain in recipe.selection.domains], np.int64)


def _check_candidates(report: MixReport, train: Split, excluded: Table) -> int:
    """Recount what the sources have for this recipe; return how many documents that are. A control has no sources of
    its own: its documents are those of another mix."""
    recipe = report.recipe
    if not recipe.slices:
        return 0
    edges = recipe.selection.lengths.edges if recipe.selection else ()
    candidates, validation = rules.not_withdrawn(report, *rules.eligible(train, recipe.slices, edges))
    if recipe.interleaved:
        rules.check_complete(train, candidates[~validation])
    rules.check_supply(report, candidates, validation, _caps(recipe), excluded)
    return len(candidates)


def _check_earlier(folder: Path, report: MixReport, train: Split, home: Home) -> Table:
    """The selected keys are those of the table; a control has its mix's documents, an exclusion none of them. Return
    the ids that are excluded."""
    ids = np.ascontiguousarray(train.documents["id"])
    selected, found = _load(folder / SELECTED), [ids[:0]]
    # A text that stands twice in a merge is named once, by the first of its documents.
    once = train.documents[np.unique(ids, return_index=True)[1]]
    if set(selected) != {"id", *_KEYS} or _keys(selected) != _keys(once):
        fail("MIX_SELECTED", SELECTED, "does not name the documents of the table")
    for earlier in report.mixes:
        other = home.mix(earlier.mix)
        path = other / MANIFEST
        if not path.is_file() or sha256(path.read_bytes()) != earlier.manifest_sha256:
            fail("MIX_EARLIER", str(path), expected=earlier.manifest_sha256, read="another mix, or none")
        if earlier.role == "documents_of" and _load(other / TABLE).tobytes() != train.documents.tobytes():
            fail("MIX_EARLIER", TABLE, f"documents are not those of {earlier.mix}")
        excluded = _load(other / SELECTED)["id"] if earlier.role == "exclude" else ids[:0]
        for at in rules.first(np.isin(ids, excluded)):
            fail("MIX_EXCLUDED", f"{TABLE}[{at}]", f"stands in the excluded mix {earlier.mix}")
        found.append(excluded)
    return np.concatenate(found)


def _keys(rows: Any) -> bytes:
    """Return the keys of documents, each once, sorted."""
    if any(len(rows[field]) != len(rows["id"]) for field in _KEYS):
        return b""
    packed = np.empty(len(rows["id"]), [("id", "V16"), *((field, "<u8") for field in _KEYS)])
    for field in ("id", *_KEYS):
        packed[field] = rows[field]
    return np.unique(packed.view(f"V{packed.itemsize}")).tobytes()


def _check_names(files: set[str], train: Split, validation: Split) -> None:
    """Shards are numbered without a gap, with all their streams each (MIX_SHARD)."""
    expected = {
        shard_name(split.name, shard, stream, split.codec)
        for split in (train, validation)
        for shard in range(split.shards)
        for stream in split.streams
    }
    read = {name for name in files if re.match(rf"({TRAIN}|{VALIDATION})_\d", name)}
    if read != expected:
        fail("MIX_SHARD", min(read ^ expected), expected=f"{len(expected)} shard files", read=len(read))


def _check_streams(folder: Path, split: Split) -> NDArray[np.int64]:
    """Compare every position of every shard; return how often each id stands in the windows."""
    counts = np.zeros(1 << 16, np.int64)
    covered, own = int(split.rows["length"].sum(dtype=np.int64)), split.per_shard * split.length
    step = max(1, _BLOCK // split.length) * split.length
    for shard in range(split.shards):
        begin, last = shard * own, shard == split.shards - 1
        windows_end, end = (covered, split.files.file_tokens) if last else (begin + own, begin + own + 1)
        streams = _read_shard(folder, split, shard, end - begin)
        for low in range(begin, min(windows_end, end), step):
            _check_windows(split, shard, streams, begin, low, min(low + step, windows_end, end))
        expected = np.concatenate(list(split.at(windows_end, windows_end + 1).values())).tolist()
        read = np.concatenate([content[windows_end - begin :] for content in streams.values()]).tolist()
        if end != windows_end and read != expected:
            where = f"{_shard(split, shard, 'ids')} at {windows_end - begin}"
            fail("MIX_SEPARATOR", where, "token after the last window", expected=expected, read=read)
        for low in range(begin, min(begin + own, split.files.windows * split.length), step):
            high = min(low + step, begin + own, split.files.windows * split.length)
            counts += np.bincount(streams["ids"][low - begin : high - begin], minlength=1 << 16)
    return counts


def _shard(split: Split, shard: int, stream: str) -> str:
    return shard_name(split.name, shard, stream, split.codec)


def _read_shard(folder: Path, split: Split, shard: int, items: int) -> dict[str, NDArray[Any]]:
    streams = {}
    for stream in split.streams:
        name = _shard(split, shard, stream)
        streams[stream] = read_array(folder / name, "<u2")
        if len(streams[stream]) != items:
            fail("MIX_SHARD", name, "tokens", expected=items, read=len(streams[stream]))
    return streams


def _check_windows(split: Split, shard: int, streams: dict[str, NDArray[Any]], begin: int, low: int, high: int) -> None:
    """Compare [low, high) of a shard that begins at `begin` with what must stand there, in every stream."""
    want = split.at(low, high)
    for stream, found in streams.items():
        for at in rules.first(found[low - begin : high - begin] != want[stream]):
            code = "MIX_SEPARATOR" if want["ids"][at] == split.separator else _CODES[stream]
            run = int(np.searchsorted(split.begins, low + at, side="right")) - 1
            window, position = divmod(low + at, split.length)
            place = f"window {window} position {position}, document {split.rows['document'][run]}"
            where, problem = f"{_shard(split, shard, stream)}: {place}", f"row {run} of the segments"
            fail(code, where, problem, expected=int(want[stream][at]), read=int(found[low - begin + at]))


def _check_next(folder: Path, train: Split) -> None:
    """`next` holds the token that truly follows each window, the separator where the document ends (MIX_NEXT)."""
    windows, rows, names = train.files.windows, train.rows, NEXT_NAMES[train.codec]
    read = {stream: read_array(folder / name, "<u2") for stream, name in names.items()}
    for stream, content in read.items():
        if len(content) != windows:
            fail("MIX_NEXT", names[stream], expected=windows, read=len(content))
    last = rows[(rows["window"] < windows) & (rows["position"] + rows["length"] == train.length)]
    after = last["document_start"].astype(np.int64) + last["length"] - last["inserted"]
    follows = (after < train.documents["tokens"][last["document"]]).astype(np.int64)
    want = train.tokens(windows, last["document"], after, last["window"], follows)
    for window in rules.first(np.any([read[stream] != want[stream] for stream in names], axis=0)):
        expected, found = ([int(tokens[window]) for tokens in both.values()] for both in (want, read))
        fail("MIX_NEXT", f"window {window}", "of each stream", expected=expected, read=found)


def _check_loss_reference(counts: NDArray[np.int64], report: MixReport) -> None:
    """The reference points are ln(V) and the entropy of the ids in the windows, to 5 digits (MIX_LOSS_REFERENCE)."""
    shares = counts[counts > 0] / counts.sum()
    said = report.loss_reference
    for field, value in (
        ("uniform_nats", math.log(said.vocabulary_size)),
        ("unigram_nats", float(-(shares * np.log(shares)).sum())),
    ):
        if abs(float(getattr(said, field)) - value) > 1e-5:
            fail("MIX_LOSS_REFERENCE", f"loss_reference.{field}", expected=f"{value:.6f}", read=getattr(said, field))

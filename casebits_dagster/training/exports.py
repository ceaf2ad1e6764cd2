"""A mix in the files of other trainers: nanoGPT's flat `.bin`, Megatron-core's `.bin` and `.idx`, and Parquet for
Hugging Face `datasets`.

Each holds the same stream of ids, whose hash and length stand in `export.json`; case masks are a second one. Layout
`windows` is the file of the mix: window k at k * T. Layout `documents` has every document in one piece, in the order in
which the mix first shows them, without inserted separators: for readers that pack, or start, where they like. The
folder appears when it is whole. Memory: the segment table, and a block of tokens.
"""

from __future__ import annotations

import pickle
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from casebits_dagster.codec.bytetable import ByteTable
from casebits_dagster.codec.decode import decode
from casebits_dagster.mixing.seeds import I64
from casebits_dagster.mixing.write import TokenRuns, write_tokens
from casebits_dagster.publication.open_mix import OpenedMix
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError
from casebits_dagster.records.mix import SEGMENTS, SHARD_SUFFIXES, TABLE, TRAIN, VALIDATION, shard_name, val_name
from casebits_dagster.records.record import Count, Name, Positive, Record, Sha256
from casebits_dagster.records.region import StoredFile
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.training.packed_mix import Split

Format: TypeAlias = Literal["nanogpt", "megatron", "datasets"]
Layout: TypeAlias = Literal["windows", "documents"]
RECORD = "export.json"
LAYOUTS: dict[Format, tuple[Layout, ...]] = {
    "nanogpt": ("windows", "documents"),
    "megatron": ("documents", "windows"),
    "datasets": ("documents",),
}
"""The layouts that a format can have; the first one is what it gets."""
FORMATS = tuple(LAYOUTS)
_BATCH_TOKENS = 1 << 20
_MEGATRON_HEAD, _MEGATRON_VERSION, _MEGATRON_UINT16 = b"MMIDIDX\0\0", 1, 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportedSplit(Record):
    """One split: its ids in order, as little-endian uint16, hash to `ids_sha256`, its masks to `cases_sha256` (None of
    a plain codec). `sequences` are documents, or in layout `windows` what a window holds of one."""

    split: Split
    tokens: Positive
    sequences: Positive
    ids_sha256: Sha256
    cases_sha256: Sha256 | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Export(Record):
    """What was exported, and into which files."""

    SCHEMA: ClassVar[str] = "casebits/export/1"

    mix: Name
    mix_manifest_sha256: Sha256
    format: Format
    layout: Layout
    vocabulary_sha256: Sha256
    vocabulary_size: Positive
    separator_id: Count
    splits: tuple[ExportedSplit, ...]
    files: tuple[StoredFile, ...]


@dataclass(frozen=True, slots=True)
class _Sequences:
    """What a split is exported as: pieces of its shards, `shards[i]` from token `starts[i]` on, `lengths[i]` tokens,
    end to end; cut into sequences at `cuts` (S + 1,). `rows` (S,) are the documents of layout `documents`."""

    split: Split
    shards: I64
    starts: I64
    lengths: I64
    cuts: I64
    rows: I64


Write: TypeAlias = Callable[[_Sequences, dict[str, Path], Path], None]


def export_mix(
    mix: OpenedMix, target: Path, form: Format, layout: Layout | None = None, table: ByteTable | None = None
) -> Export:
    """Write the mix into the new folder `target`, and return what `export.json` there says.

    `table` spells the tokens: `datasets` needs it for the texts, nanoGPT's `meta.pkl` takes it where it is given.
    Raises EXPORT_EXISTS, EXPORT_LAYOUT, or what opening the files of the mix does.
    """
    layout = layout or LAYOUTS[form][0]
    if layout not in LAYOUTS[form]:
        raise RecordError("EXPORT_LAYOUT", f"export: {form}", expected=" or ".join(LAYOUTS[form]), read=layout)
    if target.exists():
        raise CasebitsError("EXPORT_EXISTS", str(target), "is there already", remedy="name a new folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as work:
        made = Path(work) / "made"
        made.mkdir()
        splits = [_export_split(mix, split, layout, _writer(form, mix, table), made) for split in _splits(mix)]
        if form == "nanogpt":
            (made / "meta.pkl").write_bytes(_nanogpt_meta(mix.report.loss_reference.vocabulary_size, table))
        record = Export(
            mix=mix.report.recipe.mix,
            mix_manifest_sha256=mix.manifest_sha256,
            format=form,
            layout=layout,
            vocabulary_sha256=mix.report.sources[0].vocabulary_sha256,
            vocabulary_size=mix.report.loss_reference.vocabulary_size,
            separator_id=mix.report.separator.id,
            splits=tuple(splits),
            files=tuple(
                StoredFile(name=path.name, bytes=path.stat().st_size, sha256=sha256_file(path))
                for path in sorted(made.iterdir())
            ),
        )
        (made / RECORD).write_bytes(record.to_bytes())
        LocalStore(target.parent).publish_folder(made, target.name)
    return record


def _splits(mix: OpenedMix) -> Iterator[Split]:
    yield "train"
    if mix.report.validation.windows:
        yield "val"


def _writer(form: Format, mix: OpenedMix, table: ByteTable | None) -> Write:
    if form == "nanogpt":
        return _write_flat
    if form == "megatron":
        return _write_megatron
    if table is None:
        digest = mix.report.sources[0].vocabulary_sha256
        remedy = f"name a codec whose vocabulary has the sha256 {digest}"
        raise Absent("FILE_MISSING", f"export: {form}", "texts need the vocabulary", remedy=remedy)
    return partial(_write_parquet, mix, table)


def _export_split(mix: OpenedMix, split: Split, layout: Layout, write: Write, made: Path) -> ExportedSplit:
    """Write the streams of a split as flat files first: they are hashed, and every format is made of them."""
    sequences = _windows(mix, split) if layout == "windows" else _documents(mix, split)
    paths, digests = {}, {}
    with tempfile.TemporaryDirectory(prefix="flat.", dir=made.parent) as flat:
        for stream in SHARD_SUFFIXES[mix.report.codec]:
            paths[stream] = Path(flat) / stream
            digests[stream] = _write_stream(mix, sequences, paths[stream], stream)
        write(sequences, paths, made)
    return ExportedSplit(
        split=split,
        tokens=int(sequences.cuts[-1]),
        sequences=len(sequences.cuts) - 1,
        ids_sha256=digests["ids"],
        cases_sha256=digests.get("cases"),
    )


def _write_stream(mix: OpenedMix, sequences: _Sequences, path: Path, stream: str) -> str:
    """Write one stream of the sequences end to end and return its hash."""
    names = {k: shard_name(sequences.split, k, stream, mix.report.codec) for k in np.unique(sequences.shards).tolist()}
    runs = TokenRuns(
        name=path.name,
        tokens=int(sequences.cuts[-1]),
        fill=0,
        counted=0,
        places=np.cumsum(sequences.lengths) - sequences.lengths,
        lengths=sequences.lengths,
        starts=sequences.starts,
        regions=sequences.shards,
        streams={k: mix.file(name) for k, name in names.items()},
    )
    done = path.with_name("done")
    done.mkdir(exist_ok=True)
    return write_tokens(path.parent, done, runs).line.split("  ")[0]


def _windows(mix: OpenedMix, split: Split) -> _Sequences:
    """Return the file of the mix as it is; a sequence ends where the next token is not the next one of its document."""
    segments, files = _table(mix, split, SEGMENTS), mix.report.train if split == TRAIN else mix.report.validation
    starts = _places(mix, segments)
    ends = segments["document_start"].astype(np.int64) + segments["length"] - segments["inserted"]
    goes_on = segments["document"][1:] == segments["document"][:-1]
    goes_on &= (segments["document_start"][1:] == ends[:-1]) & (segments["inserted"][1:] == 0)
    end = starts[-1] + int(segments["length"][-1])
    # Behind the last window of an aligned file stands a separator of no document.
    cuts = np.unique(np.concatenate([starts[:1], starts[1:][~goes_on], [end, files.file_tokens]]))
    own = mix.report.recipe.windows_per_shard * mix.report.recipe.sequence_length
    shards = np.arange(files.shards)
    lengths = np.where(shards == files.shards - 1, files.file_tokens - own * shards, own)
    return _Sequences(split, shards, np.zeros_like(shards), lengths, cuts, shards[:0])


def _documents(mix: OpenedMix, split: Split) -> _Sequences:
    """Return the documents in the order of their first tokens in the file, each in one piece."""
    segments, recipe = _table(mix, split, SEGMENTS), mix.report.recipe
    rows, first, number = np.unique(segments["document"], return_index=True, return_inverse=True)
    order = np.lexsort((segments["document_start"], first[number]))
    pieces, rank = segments[order], np.argsort(first)
    lengths = pieces["length"].astype(np.int64) - pieces["inserted"]
    starts, shard_tokens = _places(mix, pieces) + pieces["inserted"], recipe.windows_per_shard * recipe.sequence_length
    files = mix.report.train if split == TRAIN else mix.report.validation
    # What a concatenation holds behind its last window is in its last shard.
    shards = np.minimum(starts // shard_tokens, files.shards - 1)
    tokens = np.bincount(number[order], lengths, len(rows)).astype(np.int64)
    cuts = np.concatenate([[0], np.cumsum(tokens[rank])])
    return _Sequences(split, shards, starts - shards * shard_tokens, lengths, cuts, rows[rank].astype(np.int64))


def _places(mix: OpenedMix, segments: NDArray[Any]) -> I64:
    places: I64 = segments["window"].astype(np.int64) * mix.report.recipe.sequence_length + segments["position"]
    return places


def _table(mix: OpenedMix, split: Split, name: str) -> NDArray[Any]:
    return np.asarray(np.load(mix.file(val_name(name) if split == VALIDATION else name), mmap_mode="r"))


def _write_flat(sequences: _Sequences, streams: dict[str, Path], made: Path) -> None:
    """nanoGPT: `train.bin`, `val.bin`; the masks at the same places of `train_cases.bin`, `val_cases.bin`."""
    for stream, path in streams.items():
        path.rename(made / f"{_prefix(sequences, stream)}.bin")


def _nanogpt_meta(vocabulary_size: int, table: ByteTable | None) -> bytes:
    """Return `meta.pkl`: `vocab_size` and, as nanoGPT's sampling wants it, what ids spell (`itos`) and their ids."""
    meta: dict[str, Any] = {"vocab_size": vocabulary_size}
    if table is not None:
        meta["itos"] = dict(enumerate(token.decode(errors="replace") for token in table.tokens.to_pylist()))
        meta["stoi"] = {text: token for token, text in meta["itos"].items() if text and "\ufffd" not in text}
    return pickle.dumps(meta, protocol=4)


def _write_megatron(sequences: _Sequences, streams: dict[str, Path], made: Path) -> None:
    """Megatron-core: the flat file, and an index in which every sequence is a document."""
    _write_flat(sequences, streams, made)
    count, lengths = len(sequences.cuts) - 1, np.diff(sequences.cuts)
    head = struct.pack("<QBQQ", _MEGATRON_VERSION, _MEGATRON_UINT16, count, count + 1)
    columns = (lengths.astype("<i4"), (sequences.cuts[:-1] * 2).astype("<i8"), np.arange(count + 1, dtype="<i8"))
    for stream in streams:
        with (made / f"{_prefix(sequences, stream)}.idx").open("xb") as index:
            index.write(_MEGATRON_HEAD + head)
            for column in columns:
                index.write(column.data)


def _prefix(sequences: _Sequences, stream: str) -> str:
    return sequences.split if stream == "ids" else f"{sequences.split}_{stream}"


def _write_parquet(
    mix: OpenedMix, table: ByteTable, sequences: _Sequences, streams: dict[str, Path], made: Path
) -> None:
    """Hugging Face `datasets`: `train.parquet`, `val.parquet`; one row a document, row groups of whole documents."""
    documents = _table(mix, sequences.split, TABLE)
    tokens = {stream: np.memmap(path, "<u2", "r").view(np.ndarray) for stream, path in streams.items()}
    batches = (_batch(mix, table, sequences, tokens, documents, part) for part in _parts(sequences.cuts))
    first = next(batches)
    with pq.ParquetWriter(made / f"{sequences.split}.parquet", first.schema, compression="zstd") as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def _parts(cuts: I64) -> Iterator[slice]:
    """Yield runs of sequences of at most a batch of tokens, or of one sequence that is longer."""
    begin = 0
    while begin < len(cuts) - 1:
        end = int(np.searchsorted(cuts, cuts[begin] + _BATCH_TOKENS, side="right")) - 1
        yield slice(begin, max(end, begin + 1))
        begin = max(end, begin + 1)


def _batch(
    mix: OpenedMix,
    table: ByteTable,
    sequences: _Sequences,
    tokens: dict[str, NDArray[np.uint16]],
    documents: NDArray[Any],
    part: slice,
) -> pa.RecordBatch:
    """Return the rows of some documents: where each comes from, whether all of it is here, ids, masks and text."""
    rows = documents[sequences.rows[part]]
    cuts = sequences.cuts[part.start : part.stop + 1]
    found = {stream: ids[cuts[0] : cuts[-1]] for stream, ids in tokens.items()}
    cuts, whole = cuts - cuts[0], np.diff(cuts) == rows["tokens"]
    masks = found.get("cases", np.broadcast_to(np.uint16(0), cuts[-1]))
    text = decode(table, found["ids"], masks)
    offsets = pa.array(cuts.astype(np.int32))
    columns = {
        "id": pa.array([value.hex() for value in rows["id"].tolist()]),
        "generation": _named([source.generation for source in mix.report.sources], rows["generation"]),
        "region": pa.array(rows["region"]),
        "index": pa.array(rows["index"]),
        "copy": pa.array(rows["copy"]),
        "domain": _named([domain.name for domain in mix.report.selection.domains], rows["domain"]),
        "whole": pa.array(whole),
        "ids": pa.ListArray.from_arrays(offsets, pa.array(found["ids"])),
        **({"masks": pa.ListArray.from_arrays(offsets, pa.array(masks))} if "cases" in found else {}),
        "text": _texts(text, table.cuts(found["ids"])[cuts], bool(whole.all())),
    }
    return pa.RecordBatch.from_pydict(columns)


def _named(names: list[str], numbers: NDArray[Any]) -> pa.StringArray:
    return pa.array(names).take(pa.array(numbers))


def _texts(text: NDArray[np.uint8], cuts: I64, whole: bool) -> pa.StringArray:
    """Return the texts `text[cuts[i]:cuts[i+1]]`; of one that was cut inside a character, what is before that."""
    if whole:
        buffers = [None, pa.py_buffer(cuts.astype("<i8")), pa.py_buffer(text)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(cuts) - 1, buffers).cast(pa.string())
    pieces = (text[begin:end].tobytes() for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
    return pa.array([piece.decode(errors="ignore") for piece in pieces], pa.string())

"""From a document of a region back to its source row: region, receipt, admission, manifest, source.

Works on the files below the home alone. What is small is hashed whole (manifest, receipt, admission, vocabulary); of
the arrays only the slices that are asked for are read, unless the ledger recomputes everything: then whole files, and
the source range. Costs a parse of the manifest, and of each region one read and hash of documents.jsonl.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from casebits_dagster.codec.bytetable import Ids
from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.encode import EOD
from casebits_dagster.lineage.ledger import Ledger
from casebits_dagster.lineage.records import AuditedDocument, AuditedRegion
from casebits_dagster.lineage.runs import audited_runs
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import inclusion_proof, proven_root, sha256
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.frontier import FrontierEntry, Manifest
from casebits_dagster.records.layout import ADMISSION, DOCUMENTS, RECEIPT, GenerationFolder, Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.policy import FilterPolicy
from casebits_dagster.records.region import Admission, Receipt
from casebits_dagster.regions.read import Region
from casebits_dagster.sources import range_sha256, read_rows

SOURCE_RANGE = "source range"
FILTER_AGAIN = "filter run again"


class Pinned(NamedTuple):
    """A version of a frontier by the hash of its manifest, as a mix or LATEST.json names it."""

    generation: str
    version: int
    sha256: str


@dataclass(frozen=True, slots=True)
class OpenedRegion:
    """A region that was followed; `lines` are those of documents.jsonl, of which a few are parsed."""

    audited: AuditedRegion
    region: Region
    codec: Codec
    lines: list[bytes]

    def line(self, index: int) -> dict[str, Any]:
        """Return what documents.jsonl says of a document. Raises LookupError, ValueError or TypeError."""
        found: dict[str, Any] = json.loads(self.lines[index])
        return found


@dataclass(frozen=True, slots=True)
class _Frontier:
    manifest: Manifest
    codec: Codec
    leaves: list[bytes]


@dataclass(slots=True)
class Chain:
    """Frontiers, and what lies in their regions. Each manifest, region and document is followed once.

    `generations` are those whose pins are at hand: where their source file is there too, it is read again.
    """

    home: Home
    ledger: Ledger
    generations: Mapping[str, Generation]
    _frontiers: dict[Pinned, _Frontier] = field(default_factory=dict)
    _regions: dict[tuple[Pinned, int], OpenedRegion] = field(default_factory=dict)
    _documents: dict[tuple[str, int, int], AuditedDocument] = field(default_factory=dict)

    def region(self, pinned: Pinned, index: int) -> OpenedRegion:
        """Return a region with its proof. Raises Refused or Absent when it cannot be followed."""
        if (pinned, index) not in self._regions:
            self._regions[pinned, index] = self._open(pinned, index)
        return self._regions[pinned, index]

    def document(self, opened: OpenedRegion, index: int, claimed_id: str) -> AuditedDocument:
        """Return a document; the first time it is decoded and hashed. `claimed_id` is what the asker says it is."""
        key = opened.audited.generation, opened.audited.entry, index
        if key not in self._documents:
            self._documents[key] = self._document(opened, index, claimed_id)
        found = self._documents[key]
        if found.id != claimed_id:
            where = f"{found.generation}/{found.region} document {index}"
            self.ledger.hashes("id of the document", where, claimed_id, found.id)
        return found

    def _document(self, opened: OpenedRegion, index: int, claimed_id: str) -> AuditedDocument:
        audited, (ids, masks), line = opened.audited, opened.region.tokens(index), opened.line(index)
        where, row = f"{audited.generation}/{audited.region} document {index}", line["source_position"]
        self.ledger.holds("document id in documents.jsonl", where, line["id"] == claimed_id, f"read {line['id']}")
        source, digest, size = audited.source, None, int(opened.region.raw_bytes[index])
        self.ledger.holds("source row inside the region", where, source.begin <= row < source.end, f"read row {row}")
        if self.ledger.looks:
            text = opened.codec.decode(ids, masks)
            digest, size = sha256(text), len(text)
            self.ledger.hashes("text of the document", where, claimed_id, digest[:32])
            bare = self._without_separator(opened, ids, where)
            self._read_source(audited, row, text, bare, where)
        return AuditedDocument(
            id=claimed_id,
            generation=audited.generation,
            region=audited.region,
            index=index,
            tokens=len(ids),
            text_bytes=size,
            text_sha256=digest,
            **{name: line[name] for name in ("cluster", "split", "scores", "source_position")},
        )

    def _without_separator(self, opened: OpenedRegion, ids: Ids, where: str) -> Ids:
        """Return a document's ids without its separator; it spells nothing, so decoding does not see where it is."""
        separator = opened.audited.pins.codec.separator or EOD
        at = 0 if separator.at == "start" else len(ids) - 1
        alone = np.flatnonzero(ids == separator.id).tolist() == [at]
        self.ledger.holds("separator of the document", where, alone, f"not one {separator.id}, at the {separator.at}")
        return np.delete(ids, at)

    @property
    def regions(self) -> tuple[AuditedRegion, ...]:
        return tuple(self._regions[key].audited for key in sorted(self._regions))

    @property
    def documents(self) -> tuple[AuditedDocument, ...]:
        return tuple(self._documents[key] for key in sorted(self._documents))

    def manifest(self, pinned: Pinned) -> Manifest:
        """Return a manifest, hashed. Raises OSError or RecordError."""
        return self._frontier(pinned).manifest

    def receipt(self, pinned: Pinned, index: int) -> Receipt:
        """Return the receipt of a region, hashed, without following the region. Raises Refused beyond the prefix."""
        manifest, where = self.manifest(pinned), f"{pinned.generation}/{region_id(index)}"
        entry = _entry(manifest, index, where)
        listed = {file.name: file.sha256 for file in entry.files}
        raw = (self.home.generation(pinned.generation).root / entry.path / RECEIPT).read_bytes()
        self.ledger.content("receipt", f"{where}/{RECEIPT}", listed[RECEIPT], raw)
        return Receipt.parse(raw, f"{where}/{RECEIPT}")

    def _frontier(self, pinned: Pinned) -> _Frontier:
        if pinned not in self._frontiers:
            folder = self.home.generation(pinned.generation)
            path = folder.manifest(pinned.version)
            where, raw = self.home.name(path), path.read_bytes()
            self.ledger.content("manifest", where, pinned.sha256, raw)
            manifest = Manifest.parse(raw, where)
            for file in manifest.codec:
                where = f"{pinned.generation}/codec/{file.name}"
                self.ledger.file("codec", where, file.sha256, folder.codec / file.name)
            leaves = [one.to_bytes() for one in manifest.regions]
            self._frontiers[pinned] = _Frontier(manifest, Codec.load(folder.codec), leaves)
        return self._frontiers[pinned]

    def _open(self, pinned: Pinned, index: int) -> OpenedRegion:
        folder, where = self.home.generation(pinned.generation), f"{pinned.generation}/{region_id(index)}"
        frontier = self._frontier(pinned)
        manifest, leaves = frontier.manifest, frontier.leaves
        entry = _entry(manifest, index, where)
        proof = inclusion_proof(index, leaves)
        root = proven_root(index, manifest.count, leaves[index], proof)
        self.ledger.hashes("inclusion in the manifest", where, manifest.tree_root, root)
        receipt, admission, hashed = self._records(folder, entry, where)
        vocabulary = {file.name: file.sha256 for file in manifest.codec}[CodecFiles.VOCABULARY]
        self.ledger.hashes("vocabulary of the region", where, receipt.pins.codec.vocab_sha256, vocabulary)
        self._files(folder, entry, where)
        named = (receipt.generation, receipt.region.index)
        self.ledger.holds("region that the receipt names", where, named == (pinned.generation, index), f"read {named}")
        runs = audited_runs(folder.runs(index))
        audited = AuditedRegion(
            generation=pinned.generation,
            region=region_id(index),
            content_id=receipt.content_id,
            receipt_sha256=hashed[RECEIPT],
            admission_sha256=hashed[ADMISSION],
            checks_passed=len(admission.checks),
            source=receipt.source,
            attribution=admission.attribution,
            pins=receipt.pins,
            manifest_version=manifest.version,
            manifest_sha256=pinned.sha256,
            entry=index,
            entries=manifest.count,
            tree_root=manifest.tree_root,
            inclusion_proof=proof,
            runs=tuple(run.run_id for run in runs),
            manifest_entry=entry,
            policy=self._policy(receipt, where),
            run_records=runs,
        )
        self._read_range(receipt, where)
        lines = (folder.region(index) / DOCUMENTS).read_bytes().splitlines()
        return OpenedRegion(audited, Region.open(folder.region(index)), frontier.codec, lines)

    def _policy(self, receipt: Receipt, where: str) -> FilterPolicy | None:
        """Return the filter policy by the hash that the receipt names; None where its pin is not at hand."""
        generation, pinned = self.generations.get(receipt.generation), receipt.pins.filter
        if generation is None:
            return None
        policy = generation.policy
        self.ledger.content("filter policy", f"{where}: {pinned.policy_id}", pinned.sha256, policy.to_bytes())
        return policy

    def _records(
        self, folder: GenerationFolder, entry: FrontierEntry, where: str
    ) -> tuple[Receipt, Admission, dict[str, str]]:
        """Return receipt and admission, hashed against the manifest and against each other."""
        listed = {file.name: file.sha256 for file in entry.files}
        raw = {name: (folder.root / entry.path / name).read_bytes() for name in (RECEIPT, ADMISSION)}
        hashed = {name: sha256(content) for name, content in raw.items()}
        for name, content in raw.items():
            self.ledger.content(name.removesuffix(".json"), f"{where}/{name}", listed[name], content)
        receipt = Receipt.parse(raw[RECEIPT], f"{where}/{RECEIPT}")
        admission = Admission.parse(raw[ADMISSION], f"{where}/{ADMISSION}")
        ledger, claimed = self.ledger, receipt.content_id
        ledger.hashes("content id of the receipt", where, claimed, receipt.expected_content_id())
        ledger.hashes("content id in the manifest", where, entry.content_id, claimed)
        ledger.hashes("receipt that was admitted", where, admission.receipt_sha256, hashed[RECEIPT])
        ledger.hashes("content id that was admitted", where, admission.content_id, claimed)
        proven, said = admission.source_recheck.range_sha256, receipt.source.range_sha256
        ledger.hashes("source range that was admitted", where, said, proven)
        return receipt, admission, hashed

    def _files(self, folder: GenerationFolder, entry: FrontierEntry, where: str) -> None:
        for file in entry.files:
            if file.name in (RECEIPT, ADMISSION):
                continue
            # The lines are read whole to find one, so hashing them costs nothing more.
            now, path = self.ledger.everything or file.name == DOCUMENTS, folder.root / entry.path / file.name
            self.ledger.file("file of the region", f"{where}/{file.name}", file.sha256, path, now)

    def _read_range(self, receipt: Receipt, where: str) -> None:
        source, generation = receipt.source, self.with_source(receipt.generation, receipt.source.path)
        file, place = "source file, as its source publishes it", f"{where}: {source.path}"
        if generation:
            pinned = (receipt.pins, source.revision) == (generation.pins, generation.source.pin.revision)
            self.ledger.holds("pins of the generation", where, pinned, "the receipt names other pins")
        if generation is None or not self.ledger.everything:
            self.ledger.trusts(file, source.path, source.file_sha256)
            self.ledger.trusts(SOURCE_RANGE, place, source.range_sha256)
            return
        self.ledger.file("source file", source.path, source.file_sha256, generation.source.folder / source.path)
        spec = RegionSpec(receipt.region.index, source.path, source.unit, source.begin, source.end)
        found = range_sha256(generation.source, spec)
        self.ledger.hashes(SOURCE_RANGE, place, source.range_sha256, found)

    def _read_source(self, audited: AuditedRegion, row: int, text: bytes, ids: Ids, where: str) -> None:
        source, generation = audited.source, self.with_source(audited.generation, audited.source.path)
        if generation is None:
            return
        spec = RegionSpec(audited.entry, source.path, source.unit, row, row + 1)
        rows = next(iter(read_rows(generation.source, spec)))
        self.ledger.holds("source row", where, rows.text.tobytes() == text, f"row {row} of {source.path} is other text")
        if generation.keeps_ids:
            same = np.array_equal(rows.tokens if rows.tokens is not None else [], ids)
            self.ledger.holds("ids of the source row", where, same, f"row {row} of {source.path} has other ids")

    def with_source(self, name: str, path: str) -> Generation | None:
        """Return the generation where its pins and the file of its source are at hand."""
        generation = self.generations.get(name)
        there = generation is not None and (generation.source.folder / path).exists()
        return generation if there else None


def _entry(manifest: Manifest, index: int, where: str) -> FrontierEntry:
    if index >= manifest.count:
        raise Refused("GAP", where, expected=f"a region below {manifest.count}", read=index)
    return manifest.regions[index]

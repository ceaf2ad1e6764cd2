"""From a document of a region back to its source row: region, receipt, admission, manifest, source.

Works on the files below the home alone. What is small is hashed whole (manifest, receipt, admission, vocabulary); of
the arrays only the slices that are asked for are read, unless `everything` asks for whole files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from casebits_dagster.codec.bytetable import Ids
from casebits_dagster.codec.decode import Codec
from casebits_dagster.codec.encode import EOD
from casebits_dagster.lineage.ledger import Ledger
from casebits_dagster.lineage.records import AuditedDocument, AuditedRegion
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import inclusion_proof, proven_root, sha256
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.frontier import FrontierEntry, Manifest
from casebits_dagster.records.layout import ADMISSION, DOCUMENTS, RECEIPT, GenerationFolder, Home, region_id
from casebits_dagster.records.mix import SourceUsed
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.region import Admission, Receipt
from casebits_dagster.regions.read import Region
from casebits_dagster.sources import range_sha256, read_rows

SOURCE_RANGE = "source range"


@dataclass(frozen=True, slots=True)
class OpenedRegion:
    audited: AuditedRegion
    region: Region
    codec: Codec
    lines: list[dict[str, Any]]


@dataclass(slots=True)
class Chain:
    """The frontiers that a mix was made from. Each manifest and region is followed once.

    `generations` are those whose pins are at hand: where their source file is there too, it is read again.
    """

    home: Home
    ledger: Ledger
    generations: Mapping[str, Generation]
    everything: bool
    _manifests: dict[str, tuple[Manifest, Codec]] = field(default_factory=dict)
    _regions: dict[tuple[str, int], OpenedRegion] = field(default_factory=dict)

    def region(self, used: SourceUsed, index: int) -> OpenedRegion:
        """Return a region with its proof. Raises Refused or Absent when it cannot be followed."""
        key = (used.generation, index)
        if key not in self._regions:
            manifest, codec = self._manifest(used)
            self._regions[key] = self._open(used, manifest, codec, index)
        return self._regions[key]

    def document(self, opened: OpenedRegion, index: int, claimed_id: str) -> AuditedDocument:
        """Return a document after decoding and hashing it; `claimed_id` is what the mix says it is."""
        audited, (ids, masks), line = opened.audited, opened.region.tokens(index), opened.lines[index]
        where = f"{audited.generation}/{audited.region} document {index}"
        text = opened.codec.decode(ids, masks)
        digest, row = sha256(text), line["source_position"]
        self.ledger.hashes("text of the document", where, claimed_id, digest[:32])
        self.ledger.holds("document id in documents.jsonl", where, line["id"] == claimed_id, f"read {line['id']}")
        source = audited.source
        self.ledger.holds("source row inside the region", where, source.begin <= row < source.end, f"read row {row}")
        bare = self._without_separator(opened, ids, where)
        self._read_source(audited, row, text, bare, where)
        return AuditedDocument(
            id=claimed_id,
            generation=audited.generation,
            region=audited.region,
            index=index,
            tokens=len(ids),
            text_bytes=len(text),
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

    def _manifest(self, used: SourceUsed) -> tuple[Manifest, Codec]:
        if used.generation not in self._manifests:
            folder = self.home.generation(used.generation)
            path = folder.manifest(used.manifest_version)
            where = self.home.name(path)
            raw = path.read_bytes()
            self.ledger.hashes("manifest", where, used.manifest_sha256, sha256(raw))
            manifest = Manifest.parse(raw, where)
            for file in manifest.codec:
                where = f"{used.generation}/codec/{file.name}"
                self.ledger.file("codec", where, file.sha256, folder.codec / file.name)
            self._manifests[used.generation] = manifest, Codec.load(folder.codec)
        return self._manifests[used.generation]

    def _open(self, used: SourceUsed, manifest: Manifest, codec: Codec, index: int) -> OpenedRegion:
        folder, where = self.home.generation(used.generation), f"{used.generation}/{region_id(index)}"
        if index >= manifest.count:
            raise Refused("GAP", where, expected=f"a region below {manifest.count}", read=index)
        entry = manifest.regions[index]
        leaves = [one.to_bytes() for one in manifest.regions]
        proof = inclusion_proof(index, leaves)
        root = proven_root(index, manifest.count, leaves[index], proof)
        self.ledger.hashes("inclusion in the manifest", where, manifest.tree_root, root)
        receipt, admission, hashed = self._records(folder, entry, where)
        vocabulary = {file.name: file.sha256 for file in manifest.codec}[CodecFiles.VOCABULARY]
        self.ledger.hashes("vocabulary of the region", where, receipt.pins.codec.vocab_sha256, vocabulary)
        self._files(folder, entry, where)
        named = (receipt.generation, receipt.region.index)
        self.ledger.holds("region that the receipt names", where, named == (used.generation, index), f"read {named}")
        audited = AuditedRegion(
            generation=used.generation,
            region=region_id(index),
            content_id=receipt.content_id,
            receipt_sha256=hashed[RECEIPT],
            admission_sha256=hashed[ADMISSION],
            checks_passed=len(admission.checks),
            source=receipt.source,
            attribution=admission.attribution,
            pins=receipt.pins,
            manifest_version=manifest.version,
            manifest_sha256=used.manifest_sha256,
            entry=index,
            entries=manifest.count,
            tree_root=manifest.tree_root,
            inclusion_proof=proof,
            runs=tuple(sorted(path.stem for path in folder.runs(index).glob("*.json"))),
        )
        self._read_range(receipt, where)
        region = Region.open(folder.region(index))
        return OpenedRegion(audited, region, codec, region.documents())

    def _records(
        self, folder: GenerationFolder, entry: FrontierEntry, where: str
    ) -> tuple[Receipt, Admission, dict[str, str]]:
        """Return receipt and admission, hashed against the manifest and against each other."""
        listed = {file.name: file.sha256 for file in entry.files}
        raw = {name: (folder.root / entry.path / name).read_bytes() for name in (RECEIPT, ADMISSION)}
        hashed = {name: sha256(content) for name, content in raw.items()}
        for name, found in hashed.items():
            self.ledger.hashes(name.removesuffix(".json"), f"{where}/{name}", listed[name], found)
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
            now, path = self.everything or file.name == DOCUMENTS, folder.root / entry.path / file.name
            self.ledger.file("file of the region", f"{where}/{file.name}", file.sha256, path, now)

    def _read_range(self, receipt: Receipt, where: str) -> None:
        source, generation = receipt.source, self._with_source(receipt.generation, receipt.source.path)
        file, place = "source file, as its source publishes it", f"{where}: {source.path}"
        if generation is None:
            self.ledger.trusts(file, source.path, source.file_sha256)
            self.ledger.trusts(SOURCE_RANGE, place, source.range_sha256)
            return
        pinned = (receipt.pins, source.revision) == (generation.pins, generation.source.pin.revision)
        self.ledger.holds("pins of the generation", where, pinned, "the receipt names other pins")
        if self.everything:
            self.ledger.file("source file", source.path, source.file_sha256, generation.source.folder / source.path)
        else:
            self.ledger.trusts(file, source.path, source.file_sha256)
        spec = RegionSpec(receipt.region.index, source.path, source.unit, source.begin, source.end)
        found = range_sha256(generation.source, spec)
        self.ledger.hashes(SOURCE_RANGE, place, source.range_sha256, found)

    def _read_source(self, audited: AuditedRegion, row: int, text: bytes, ids: Ids, where: str) -> None:
        source, generation = audited.source, self._with_source(audited.generation, audited.source.path)
        if generation is None:
            return
        spec = RegionSpec(audited.entry, source.path, source.unit, row, row + 1)
        rows = next(iter(read_rows(generation.source, spec)))
        self.ledger.holds("source row", where, rows.text.tobytes() == text, f"row {row} of {source.path} is other text")
        if generation.keeps_ids:
            same = np.array_equal(rows.tokens if rows.tokens is not None else [], ids)
            self.ledger.holds("ids of the source row", where, same, f"row {row} of {source.path} has other ids")

    def _with_source(self, name: str, path: str) -> Generation | None:
        generation = self.generations.get(name)
        there = generation is not None and (generation.source.folder / path).exists()
        return generation if there else None

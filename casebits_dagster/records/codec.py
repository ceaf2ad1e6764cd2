"""The pin of a codec: its files by hash, its format, and how it was trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from casebits_dagster.records.record import Name, Positive, Record, Sha256, Text
from casebits_dagster.records.region import CodecPin, Separator


@dataclass(frozen=True, kw_only=True, slots=True)
class CodecFiles(Record):
    """A codec pin: `vocabulary.json` (tokenizers format) and `mixture.npz` beside it, by hash, and how to make them.

    `casebits-1` has lower-case ids, case masks and (where one is pinned) their mixture. `plain-1` keeps the ids of any
    uint16 tokenizer; it has no mixture and names its `separator`. A codec that `trained_on` the source of a generation
    can be trained again from it; its `command` says how.
    """

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"mixture_sha256", "separator", "trained_on"})

    codec: Name
    format: Literal["casebits-1", "plain-1"]
    vocabulary_sha256: Sha256
    mixture_sha256: Sha256 | None = None
    vocabulary_size: Positive
    command: Text
    trained_on: Name | None = None
    separator: Separator | None = None

    VOCABULARY: ClassVar[str] = "vocabulary.json"
    MIXTURE: ClassVar[str] = "mixture.npz"

    @property
    def pin(self) -> CodecPin:
        """What a receipt says of the codec."""
        return CodecPin(
            vocab_sha256=self.vocabulary_sha256,
            mixture_sha256=self.mixture_sha256,
            format=self.format,
            separator=self.separator,
        )

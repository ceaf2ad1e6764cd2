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
    uint16 tokenizer; it has no mixture and names its `separator`.
    """

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"separator"})

    codec: Name
    format: Literal["casebits-1", "plain-1"]
    vocabulary_sha256: Sha256
    mixture_sha256: Sha256 | None = None
    vocabulary_size: Positive
    command: Text
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

"""What a pinned vocabulary file must be, and the byte table it gives: one for CaseBits, one for a plain codec."""

from __future__ import annotations

import functools
import json
from typing import Any

from casebits_dagster.admission.tables import (
    CAPITALS,
    LONGEST,
    CaseTable,
    PlainTable,
    Spelling,
    named_ids,
    spelled_tokens,
)
from casebits_dagster.records.layout import EOD_ID
from casebits_dagster.records.region import Separator


@functools.lru_cache(maxsize=4)
def read_vocabulary(raw: bytes) -> CaseTable:
    """Return the table of a lower-BPE vocabulary file, or raise ValueError saying which rule it breaks."""
    tokens, found = _read(raw, EOD_ID)
    if not _is_tokenizer(found):
        raise ValueError("not a byte-level vocabulary: no tokenizer")
    if found.get("added_tokens"):
        raise ValueError("tokens are added to the vocabulary, so text could become a structural id")
    _require_bytes(tokens)
    for number, token in enumerate(tokens):
        if len(token) > LONGEST:
            raise ValueError(f"token {number} has {len(token)} bytes, more than a mask has bits")
        if len(token) > 1 and not CAPITALS.isdisjoint(token):
            raise ValueError(f"token {number} has a capital letter")
    return CaseTable.of(tokens)


@functools.lru_cache(maxsize=4)
def read_plain(raw: bytes, separator: Separator, keeps_ids: bool) -> PlainTable:
    """Return the table of a plain codec's vocabulary file, or raise ValueError saying which rule it breaks.

    A table that only spells ids, as GPT-2's, will do where the source's ids are kept; where text has to become ids it
    must be a tokenizer. A text that has the separator's name in it cannot take its id unseen: L2_EOD refuses it.
    """
    tokens, found = _read(raw, separator.id)
    if separator.id >= len(tokens):
        raise ValueError(f"the separator {separator.id} is none of the {len(tokens)} ids")
    if len(tokens) > 1 << 16:
        raise ValueError(f"{len(tokens)} ids do not fit 16 bits")
    if not keeps_ids and not _is_tokenizer(found):
        raise ValueError("it only spells ids, and the ids are not those of the source")
    if _is_tokenizer(found):
        _require_bytes(tokens)
    return PlainTable(Spelling.of(tokens), separator)


def _read(raw: bytes, separator: int) -> tuple[list[bytes], dict[str, Any]]:
    """Return the bytes of each token in the order of ids, of which the separator has none, and the file."""
    try:
        found = json.loads(raw)
        named = named_ids(found)
        if sorted(named.values()) != list(range(len(named))):
            raise ValueError("ids are not 0 .. V-1, each once")
        tokens = spelled_tokens(named, separator)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a byte-level vocabulary: {error!r}") from error
    if empty := [number for number, token in enumerate(tokens) if not token and number != separator]:
        raise ValueError(f"token {empty[0]} has no bytes")
    return tokens, found


def _is_tokenizer(found: dict[str, Any]) -> bool:
    model = found.get("model")
    return isinstance(model, dict) and "merges" in model


def _require_bytes(tokens: list[bytes]) -> None:
    if missing := sorted(set(range(256)) - {token[0] for token in tokens if len(token) == 1}):
        raise ValueError(f"byte {missing[0]} is no token")

"""SHA-256 in the few forms the formats use, and the RFC 6962 tree.

Every digest is over raw bytes, printed as lower-case hex.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path


def sha256(*parts: bytes | memoryview) -> str:
    """Return the SHA-256 of the parts as one byte string."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file, streamed."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tree_root(entries: Sequence[bytes]) -> str:
    """Return the Merkle tree hash of RFC 6962 section 2.1 over `entries`, in order.

    >>> tree_root([])
    'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
    """
    return _tree(entries).hex() if entries else hashlib.sha256(b"").hexdigest()


def inclusion_proof(index: int, entries: Sequence[bytes]) -> tuple[str, ...]:
    """Return the audit path of RFC 6962 section 2.1.1 for `entries[index]`, nearest sibling first."""
    if len(entries) <= 1:
        return ()
    split = _split(len(entries))
    if index < split:
        return (*inclusion_proof(index, entries[:split]), _tree(entries[split:]).hex())
    return (*inclusion_proof(index - split, entries[split:]), _tree(entries[:split]).hex())


def proven_root(index: int, count: int, entry: bytes, proof: Sequence[str]) -> str:
    """Return the root that `proof` yields for `entry` at `index` of `count` entries (RFC 9162 section 2.1.3.2).

    The entry is included exactly when this equals the published root. A proof of the wrong length yields "".
    """
    node, first, last = hashlib.sha256(b"\0" + entry).digest(), index, count - 1
    for sibling in map(bytes.fromhex, proof):
        if last == 0:
            return ""
        if first & 1 or first == last:
            node = hashlib.sha256(b"\1" + sibling + node).digest()
            while first and not first & 1:
                first, last = first >> 1, last >> 1
        else:
            node = hashlib.sha256(b"\1" + node + sibling).digest()
        first, last = first >> 1, last >> 1
    return node.hex() if last == 0 else ""


def _split(count: int) -> int:
    return 1 << (count - 1).bit_length() - 1


def _tree(entries: Sequence[bytes]) -> bytes:
    if len(entries) == 1:
        return hashlib.sha256(b"\0" + entries[0]).digest()
    split = _split(len(entries))
    return hashlib.sha256(b"\1" + _tree(entries[:split]) + _tree(entries[split:])).digest()

"""The RFC 6962 tree against the published test vectors of Certificate Transparency's reference implementation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebits_dagster.records.digests import inclusion_proof, proven_root, sha256, sha256_file, tree_root

LEAVES = tuple(
    map(
        bytes.fromhex,
        ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"],
    )
)
ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
# (index, count): audit path, nearest sibling first
PATHS = {
    (0, 1): (),
    (0, 8): (
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ),
    (5, 8): (
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (2, 3): ("fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",),
    (1, 5): (
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ),
}


@pytest.mark.parametrize("count", range(9))
def test_tree_root(count: int) -> None:
    assert tree_root(LEAVES[:count]) == ROOTS[count]


@pytest.mark.parametrize(("index", "count"), PATHS)
def test_inclusion_proof(index: int, count: int) -> None:
    assert inclusion_proof(index, LEAVES[:count]) == PATHS[index, count]
    assert proven_root(index, count, LEAVES[index], PATHS[index, count]) == ROOTS[count]


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=40), st.data())
def test_a_proof_yields_the_root_for_its_own_entry_and_place_only(entries: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(entries) - 1))
    proof = inclusion_proof(index, entries)
    assert proven_root(index, len(entries), entries[index], proof) == tree_root(entries)
    assert proven_root(index, len(entries), entries[index] + b"x", proof) != tree_root(entries)
    other = data.draw(st.integers(0, len(entries) - 1))
    if entries[other] != entries[index]:
        assert proven_root(other, len(entries), entries[index], proof) != tree_root(entries)


@pytest.mark.parametrize("proof", [PATHS[0, 8][:2], (*PATHS[0, 8], ROOTS[8])], ids=["too short", "too long"])
def test_a_proof_of_the_wrong_length_yields_nothing(proof: tuple[str, ...]) -> None:
    assert proven_root(0, 8, LEAVES[0], proof) == ""


def test_sha256_is_over_the_parts_joined(tmp_path: Path) -> None:
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(b"a", memoryview(b"bc")) == expected
    (tmp_path / "file").write_bytes(b"abc")
    assert sha256_file(tmp_path / "file") == expected

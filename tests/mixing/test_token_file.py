"""Files of token ids from anywhere: what is read, and what is refused in which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casebits_dagster.mixing.token_file import open_token_file
from casebits_dagster.records.errors import CasebitsError

IDS = np.arange(1000) * 7 % 50257


@pytest.mark.parametrize("dtype", ["u2", "u4"])
def test_a_flat_file_is_read_from_any_place(tmp_path: Path, dtype: str) -> None:
    IDS.astype(f"<{dtype}").tofile(tmp_path / "x.bin")
    found = open_token_file(tmp_path / "x.bin", dtype)
    assert (found.tokens, found.dtype) == (1000, np.dtype(f"<{dtype}"))
    assert found.read(10, 990).tolist() == IDS[10:990].tolist()


@pytest.mark.parametrize(("stored", "asked"), [("<u2", None), ("<u2", "u2"), (">u2", None), ("<i8", None)])
def test_an_array_says_itself_what_it_is(tmp_path: Path, stored: str, asked: str | None) -> None:
    np.save(tmp_path / "x.npy", IDS.astype(stored))
    found = open_token_file(tmp_path / "x.npy", asked)
    assert (found.tokens, found.read(990, 1000).tolist()) == (1000, IDS[990:].tolist())


def _bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def _array(values: Any) -> Callable[[Path], object]:
    return lambda path: np.save(path, values)


@pytest.mark.parametrize(
    ("name", "write", "dtype", "problem"),
    [
        ("x.bin", lambda path: None, "u2", "FILE_MISSING {path}: there is no such file"),
        (
            "x.bin",
            _bytes(bytes(2001)),
            "u2",
            "TOKENS_INVALID {path}: expected a multiple of 2 bytes, read 2001 "
            "(the file was cut, or has another dtype)",
        ),
        (
            "x.bin",
            _bytes(bytes(2002)),
            "u4",
            "TOKENS_INVALID {path}: expected a multiple of 4 bytes, read 2002 "
            "(the file was cut, or has another dtype)",
        ),
        (
            "x.bin",
            _bytes(b"12"),
            None,
            "TOKENS_INVALID {path}: its bytes do not say what they are (give --dtype u2 or --dtype u4)",
        ),
        (
            "x.bin",
            _bytes((IDS + 200_000).astype("<u4").tobytes() + IDS.astype("<u4").tobytes() * 2),
            "u2",
            "TOKENS_INVALID {path}: every second id is below 16, and most of those are 0: 4-byte ids read as u2 "
            "(--dtype u4)",
        ),
        ("x.npy", _array(IDS.reshape(10, -1)), None, "TOKENS_INVALID {path}: expected 1 dimension of integers, "
         "read 2 of int64"),
        ("x.npy", _array(IDS / 2), None, "TOKENS_INVALID {path}: expected 1 dimension of integers, read 1 of float64"),
        ("x.npy", _array(IDS), "u2", "TOKENS_INVALID {path}: expected --dtype u2, read int64"),
        ("x.npy", _bytes(b"\x93NUMPY\x01\x00\xff\xff"), None, "TOKENS_INVALID {path}: "),
        ("x.npy", _array(np.array([None])), None, "TOKENS_INVALID {path}: "),
    ],
)  # fmt: skip
def test_what_is_not_a_file_of_ids_is_refused(
    tmp_path: Path, name: str, write: Callable[[Path], object], dtype: str | None, problem: str
) -> None:
    path = tmp_path / name
    write(path)
    with pytest.raises(CasebitsError) as caught:
        open_token_file(path, dtype)
    expected = problem.format(path=path)
    assert str(caught.value)[: len(expected)] == expected
    assert (str(caught.value) == expected) == (not problem.endswith(": "))


def test_small_values_in_every_second_place_are_no_halves(tmp_path: Path) -> None:
    """As in case masks: most are 0, in both places."""
    masks = np.where(np.arange(1000) % 9 == 0, 40_000, 0) * (np.arange(1000) % 2 == 0)
    masks.astype("<u2").tofile(tmp_path / "x.bin")
    assert open_token_file(tmp_path / "x.bin", "u2").tokens == 1000

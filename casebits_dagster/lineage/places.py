"""Find the folder that a text means: what is named below the home wins; a path contains a / or starts with a dot."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import get_args

from casebits_dagster.records.errors import Absent
from casebits_dagster.records.layout import RECEIPT, Home
from casebits_dagster.records.record import Name, Pattern

NAME = next(rule for rule in get_args(Name) if isinstance(rule, Pattern))
_REMEDY = "see `casebits status`"


def is_name(text: str) -> bool:
    """Whether the text is a plain name, that is, no path."""
    return re.fullmatch(NAME.expression, text) is not None


def find_folder(text: str, named: Path) -> Path:
    """Return the folder `named`, when the text is a name, or else the folder whose path the text is."""
    places = [named] * is_name(text) + _as_path(text)
    for folder in places:
        if folder.is_dir():
            return folder
    problem = f"there is no folder {places[0]}" if places else f"expected {NAME.meaning}, or a path with a /"
    raise Absent("FILE_MISSING", text, problem, remedy=_REMEDY)


def find_region(text: str, home: Home) -> Path:
    """Return the folder of a region that is named as GENERATION/REGION below the home, or else by its path."""
    generation, _, region = text.rpartition("/")
    named = is_name(generation) and re.fullmatch(r"[0-9]{1,9}", region)
    places = [home.generation(generation).region(int(region))] if named else []
    places += _as_path(text)
    for folder in places:
        if (folder / RECEIPT).exists():
            return folder
    problem = f"no region is published in {places[0]}" if places else "it is neither GENERATION/REGION nor a path"
    raise Absent("REGION_MISSING", text, problem, remedy=_REMEDY)


def listable(folder: Path) -> Path:
    """Return the folder, there or not. Raises OSError when what is there cannot be listed (a file, no permission)."""
    with contextlib.suppress(FileNotFoundError):
        os.scandir(folder).close()
    return folder


def _as_path(text: str) -> list[Path]:
    return [Path(text).absolute()] if "/" in text or text.startswith(".") else []

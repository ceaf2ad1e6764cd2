"""What a process did to a folder, as `strace` saw it: the operations that a crash may leave done or undone."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CHANGES = (
    "open,openat,creat,write,pwrite64,writev,ftruncate,truncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,"
    "mkdir,mkdirat,unlink,unlinkat,rmdir,symlink,symlinkat,copy_file_range,sendfile"
)
_CALL = re.compile(r"^\d+ +(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)")
_TEXT = r'"((?:[^"\\]|\\.)*)"'


class Operation(NamedTuple):
    """One change. Paths are relative to the folder; `content` is what a write wrote, or the text of an `ack`."""

    kind: str
    path: str
    other: str = ""
    content: bytes = b""


def record(module: str, arguments: list[str], folder: Path, trace: Path) -> list[Operation]:
    """Run a module of ours under `strace` and return what it did below `folder`, in order."""
    strace = ["strace", "-f", "-y", "-qq", "-s", "10000000", "-o", str(trace), "-e", f"trace={CHANGES}"]
    command = [*strace, sys.executable, "-m", module, *arguments]
    environment = os.environ | {"RAYON_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    lines = trace.read_text(encoding="ascii", errors="replace").splitlines()
    found = (parse(line, str(folder)) for line in lines)
    return [operation for operation in found if operation is not None]


def parse(line: str, folder: str) -> Operation | None:
    """Return the operation of a line; None for a call that failed, changed nothing, or was elsewhere."""
    call = _CALL.match(line)
    if call is None or int(call["result"]) < 0:
        return None
    name, arguments = call["name"], call["arguments"]
    if name in ("write", "pwrite64", "writev") and '"ack ' in arguments:
        return Operation("ack", "", content=_bytes(arguments))
    # The folder of work is a name in its parent, which therefore counts, too.
    places = (f"{folder}/", f"<{folder}>", f'"{folder}"', f"<{os.path.dirname(folder)}>")
    if not any(place in arguments for place in places):
        return None
    quoted = [ast.literal_eval(f'"{text}"') for text in re.findall(_TEXT, arguments)]
    held = re.search(r"<([^>]*)>", arguments)
    if name in ("open", "openat", "creat"):
        made = "O_CREAT" in arguments or name == "creat"
        return Operation("create", _below(quoted[0], folder)) if made else None
    if name in ("write", "pwrite64", "writev") and held:
        return Operation("write", _below(held[1], folder), content=_bytes(arguments))
    if name in ("fsync", "fdatasync") and held:
        return Operation("fsync", _below(held[1], folder))
    if name in ("unlink", "unlinkat", "rmdir"):
        path = quoted[0] if quoted[0].startswith("/") or held is None else f"{held[1]}/{quoted[0]}"
        return Operation("remove", _below(path, folder))
    if name in ("mkdir", "mkdirat"):
        return Operation("mkdir", _below(quoted[0], folder))
    if name.startswith(("rename", "link")):
        return Operation(re.sub("at2?$", "", name), _below(quoted[0], folder), _below(quoted[1], folder))
    raise ValueError(f"a change that the model does not know: {line[:200]}")


def _bytes(arguments: str) -> bytes:
    return b"".join(ast.literal_eval(f'b"{text}"') for text in re.findall(_TEXT, arguments))


def _below(path: str, folder: str) -> str:
    return os.path.relpath(path, folder)

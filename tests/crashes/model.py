"""Every state that a power cut may leave, by what POSIX promises and nothing more.

A file's bytes are sure once it was fsynced; a name (made, moved, linked, removed) once the folder that holds it was.
What is not sure may have happened or not, in any combination; a move happens in both of its folders or in none. Only
what lies outside staging is looked at: states that differ in staging alone are one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.crashes.journal import Operation

# A state: the files that a reader finds, by path; None for one whose bytes may be cut short.
State: TypeAlias = dict[str, bytes | None]
STAGING = ".staging"


@dataclass(eq=False)
class Node:
    """A file (`content`, and how much of it is sure) or a folder (`sure` names, and changes that are not)."""

    folder: bool
    content: bytes = b""
    durable: bool = False
    sure: dict[str, Node] = field(default_factory=dict)
    unsure: list[Change] = field(default_factory=list)

    def names(self, done: set[int] | None = None) -> dict[str, Node]:
        """Return the folder's names when, of the unsure changes, those in `done` happened (None: all of them)."""
        found = dict(self.sure)
        for change in self.unsure:
            if done is None or change.number in done:
                if change.node is None:
                    found.pop(change.name, None)
                else:
                    found[change.name] = change.node
        return found


@dataclass(frozen=True)
class Change:
    number: int
    name: str
    node: Node | None


class Disk:
    """A disk that follows operations one by one and can say, at any point, what a power cut would leave."""

    def __init__(self) -> None:
        # The folder of work itself is a name in one that was there before.
        self.top = Node(folder=True)
        self.number = 0

    def apply(self, operation: Operation) -> None:
        self.number += 1
        kind, path = operation.kind, operation.path
        if kind in ("mkdir", "create"):
            if self.find(path) is None:
                self._change(path, Node(folder=kind == "mkdir"))
        elif kind == "write":
            node = self._node(path)
            node.content, node.durable = node.content + operation.content, False
        elif kind == "fsync":
            node = self._node(path)
            node.durable, node.sure, node.unsure = True, node.names(), []
        elif kind == "remove":
            self._change(path, None)
        elif kind in ("rename", "link"):
            node = self._node(path)
            if kind == "rename":
                self._change(path, None)
            self._change(operation.other, node)

    def find(self, path: str) -> Node | None:
        node: Node | None = self.top
        for part in _parts(path):
            node = node.names().get(part) if node else None
        return node

    def _node(self, path: str) -> Node:
        node = self.find(path)
        if node is None:
            raise LookupError(path)
        return node

    def _change(self, path: str, node: Node | None) -> None:
        *parents, name = _parts(path)
        parent = self._node("/".join(parents[1:]) or ("." if parents else ".."))
        parent.unsure.append(Change(self.number, name, node))

    def states(self) -> Iterator[State]:
        """Yield every state that a power cut may leave now."""
        unsure = sorted({change.number for node in self._visible(self.top) for change in node.unsure})
        for size in range(len(unsure) + 1):
            for done in itertools.combinations(unsure, size):
                yield dict(self._read(self.top, "", set(done)))

    def now(self) -> State:
        """Return what a reader finds without a crash."""
        return {path: content or b"" for path, content in self._read(self.top, "", None)}

    def _visible(self, node: Node) -> Iterator[Node]:
        yield node
        # What a name was before its folder changed can come back, too.
        nodes = {id(n): n for n in (*node.names().values(), *node.sure.values())}
        hidden = {id(names[STAGING]) for names in (node.names(), node.sure) if STAGING in names}
        for key, below in nodes.items():
            if below.folder and key not in hidden:
                yield from self._visible(below)

    def _read(self, node: Node, path: str, done: set[int] | None) -> Iterator[tuple[str, bytes | None]]:
        for name, below in node.names(done).items():
            if name == STAGING:
                continue
            if below.folder:
                yield from self._read(below, f"{path}{name}/", done)
            else:
                yield f"{path}{name}".removeprefix("./"), below.content if below.durable or done is None else None


def _parts(path: str) -> list[str]:
    """Return the names from the top: the folder of work is `.` in it."""
    return [] if path == ".." else ["."] if path == "." else [".", *path.split("/")]


@dataclass
class Promise:
    """What was acknowledged up to now: `files` that must be there, and `outdated` contents that must not come back."""

    files: State = field(default_factory=dict)
    outdated: set[tuple[str, bytes | None]] = field(default_factory=set)

    def extend(self, now: State) -> Promise:
        replaced = {(path, content) for path, content in self.files.items() if now[path] != content}
        return Promise(now, self.outdated | replaced)


def crash_states(operations: Sequence[Operation]) -> Iterator[tuple[Promise, State]]:
    """Yield (what was promised by then, state) for every state of every crash point, each pair once."""
    disk, promise, seen = Disk(), Promise(), set[tuple[object, ...]]()
    for operation in operations:
        if operation.kind == "ack":
            promise = promise.extend(disk.now())
        disk.apply(operation)
        for state in disk.states():
            key = (id(promise), *sorted((path, hash(content)) for path, content in state.items()))
            if key not in seen:
                seen.add(key)
                yield promise, state

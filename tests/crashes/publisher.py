"""A process that publishes and is killed: each line on stdin is a task (JSON), done in a fork, answered by two lines.

    python -m tests.crashes.publisher

The answers are the fork's id, and its exit status when it ended. With a task as the argument it is done at once, in a
fork as well, so that whoever counts its system calls does not count those of the imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from casebits_dagster.publication.publication import PublishedFile
from casebits_dagster.publication.publish import publish
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.frontier import Latest, Manifest
from casebits_dagster.records.layout import LATEST, Home
from casebits_dagster.stores.hub import HubStore, Patience
from casebits_dagster.stores.hub_repository import HubRepository
from tests.publication.chain import Chain, generation_publication, kept

PATIENT = Patience(attempts=4, pause=0.01, longest_pause=0.1, timeout=60.0)


@dataclass
class Publisher:
    """Such a process, asked to do one thing after the other."""

    process: subprocess.Popen[str]

    def begin(self, **task: Any) -> int:
        """Let a task begin, and return the id of its process."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(task)}\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self) -> int:
        """Wait until the task has ended; return its status, that of a shell's child for a signal."""
        return self._answer()

    def _answer(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@contextmanager
def publisher(endpoint: str = "") -> Iterator[Publisher]:
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_secret"}
    # One way of transfer, and no request but those of publishing.
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    command, pipe = [sys.executable, "-m", "tests.crashes.publisher"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        yield Publisher(process)
        process.stdin.close()  # type: ignore[union-attr]


def whole_generation(home: str, name: str, destination: str) -> None:
    publish(generation_publication(Home(Path(home)), name), destination, say=_quiet, patience=PATIENT)


def chain(versions: int, destination: str) -> None:
    """Publish the last version of a chain that every caller grows alike."""
    grown = Chain()
    for number in range(versions):
        publication = grown.grow(str(number))
    publish(publication, destination, say=_quiet, patience=PATIENT)


def increments(publisher: int, number: int, repo: str) -> None:
    """Add regions of one's own, each on whatever is published by then: who loses a race builds anew on the winner's."""
    repository, known = HubRepository(repo, patience=PATIENT), dict[str, PublishedFile]()
    for increment in range(number):
        text = f"increment {increment} of publisher {publisher}"
        while True:
            grown = _published_chain(repository, known)
            try:
                done = publish(grown.grow(text), f"hf://datasets/{repo}", say=_quiet, patience=PATIENT)
            except CasebitsError as error:
                if error.code not in ("STORE_CONFLICT", "EQUIVOCATION", "HISTORY_REWRITTEN", "ROLLBACK"):
                    raise
                time.sleep(0.01 * (1 + publisher))
                continue
            if grown.manifest and done.latest.version >= grown.manifest.version:
                break


def _published_chain(repository: HubRepository, known: dict[str, PublishedFile]) -> Chain:
    """Return what is published as a chain to grow; `known` keeps what was fetched."""
    head = repository.head()
    if LATEST not in repository.tree(head):
        return Chain()
    latest = Latest.parse(repository.at(head).get(LATEST), LATEST)
    store = repository.at(latest.manifest.revision)
    paths = [f"frontier/manifests/{version:08d}.json" for version in range(1, latest.version + 1)]
    manifests = [_fetched(store, path, known) for path in paths]
    raw = manifests[-1].content
    manifest = Manifest.parse(raw if isinstance(raw, bytes) else b"", "manifest")
    names = [f"{entry.path}/{file.name}" for entry in manifest.regions for file in entry.files]
    files = tuple(_fetched(store, name, known) for name in names)
    return replace(Chain(), manifest=manifest, files=files, manifests=tuple(manifests))


def _fetched(store: HubStore, path: str, known: dict[str, PublishedFile]) -> PublishedFile:
    if path not in known:
        known[path] = kept(path, store.get(path))
    return known[path]


def _quiet(_: str) -> None: ...


TASKS: dict[str, Callable[..., None]] = {"generation": whole_generation, "chain": chain, "increments": increments}


def do(task: dict[str, Any], answer: Callable[[int], object] = _quiet) -> int:  # type: ignore[assignment]
    """Do a task in a fork; return how that ended."""
    if child := os.fork():
        answer(child)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        TASKS[task.pop("task")](**task)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def main() -> int:
    if len(sys.argv) > 1:
        return do(json.loads(sys.argv[1]))
    for line in sys.stdin:
        status = do(json.loads(line), lambda child: print(child, flush=True))
        print(status, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

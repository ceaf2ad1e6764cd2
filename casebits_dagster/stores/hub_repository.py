"""A dataset of the Hugging Face Hub as a place to publish to: commits that are known to have arrived, whole.

Guarantees: a commit that is returned descends from its parent and holds every file that was given, as the Hub itself
tells by size and hash. Nothing is sent twice on a doubt: when an answer is lost, what is there is read first. Whoever
lost a race is told so (Conflict), and has changed nothing.

Costs: one request to learn the head, one a thousand files to list a tree; a commit is five and two a large file.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from huggingface_hub import CommitOperationAdd, RepoFile, get_session
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from casebits_dagster.records.errors import Conflict, Refused
from casebits_dagster.stores.base import safe_path
from casebits_dagster.stores.hub import HubDataset, HubFile, HubStore, Patience, T, told


class HubRepository(HubDataset):
    """The branch `main` of a dataset. Nothing here takes what an earlier request told for what is there now."""

    RIGHT: ClassVar[str] = "write to it"
    SLOWER: ClassVar[int] = 10  # than a read: how much longer the Hub may be silent over a commit

    def __init__(self, repo: str, endpoint: str = "", patience: Patience | None = None) -> None:
        try:
            validate_repo_id(repo)
        except HFValidationError as error:
            raise Refused("STORE_PROTOCOL", repo, str(error)) from error
        super().__init__(repo, endpoint, patience)

    def _persist(self, where: str, step: Callable[[], T], received: Sequence[bytes] = ()) -> T:
        # The client's own limit is none, and most of its calls take no other.
        get_session().timeout = self.SLOWER * self.patience.timeout
        return super()._persist(where, step, received)

    def create(self, *, private: bool) -> None:
        """Make the dataset; one that is there stays as it is, with its own visibility."""

        def make() -> None:
            try:
                self._api.create_repo(self.repo, repo_type="dataset", private=private)
            except HfHubHTTPError as error:
                if error.response.status_code != 409:
                    raise

        self._persist(self.repo, make)

    def head(self) -> str:
        """Return the full id of the newest commit, as the Hub tells now. Raises Absent when there is no dataset."""
        # A download of `main` would answer from the client's cache when the Hub does not.
        info = self._persist(self.repo, lambda: self._api.dataset_info(self.repo, timeout=self.patience.timeout))
        if info.sha is None:
            raise Refused("STORE_PROTOCOL", self.repo, f"{self.endpoint} tells of no commit")
        return info.sha

    def at(self, revision: str) -> HubStore:
        """Return the store of what the dataset holds at a revision."""
        return HubStore(self.repo, revision, self.endpoint, self.patience)

    def commit(self, parent: str, add: Mapping[str, Path | bytes], message: str) -> str:
        """Commit files (at most 1,000) onto `parent`, and return a revision after it that holds them all: this commit,
        or a later one, when the Hub had these bytes already or when this commit's answer was lost.

        Raises Conflict when `parent` is not the head any more, Refused STORE_PROTOCOL when the Hub left out a file.
        """
        where, answered = f"{self.repo}@{parent[:8]}", False
        operations = [CommitOperationAdd(safe_path(path), content) for path, content in add.items()]
        attempts = itertools.count()

        def attempt() -> str:
            nonlocal answered
            # The commit before this attempt may have happened, though its answer was lost.
            if next(attempts) and (head := self.head()) != parent:
                return head
            revision = self._send(where, parent, operations, message)
            answered = True
            return revision

        revision = self._persist(where, attempt)
        found, missing = self._look(revision, list(add)), []
        for operation in operations:
            path, digest = operation.path_in_repo, operation.upload_info.sha256.hex()
            if path not in found or not found[path].holds(add[path], digest):
                missing.append(path)
        if missing:
            # Bytes that the head has are answered with the head, whatever the parent; it may have moved on since.
            before = self._look(parent, missing)
            if answered and all(found.get(path) == before.get(path) for path in missing):
                problem = "the Hub left it out of a commit, as a .gitignore there may say"
                raise Refused("STORE_PROTOCOL", f"{where}/{missing[0]}", problem, remedy="change that .gitignore")
            raise moved_on(where)
        return revision

    def _send(self, where: str, parent: str, operations: list[CommitOperationAdd], message: str) -> str:
        try:
            return self._api.create_commit(
                self.repo, operations, commit_message=message, repo_type="dataset", parent_commit=parent
            ).oid
        except (HfHubHTTPError, UnicodeEncodeError, json.JSONDecodeError) as error:
            if isinstance(error, HfHubHTTPError) and error.response.status_code == 412:
                raise moved_on(where) from error
            raise
        except ValueError as error:
            raise Refused("STORE_PROTOCOL", where, str(error)) from error

    def _look(self, revision: str, paths: list[str]) -> dict[str, HubFile]:
        def look() -> list[RepoFile]:
            found = self._api.get_paths_info(self.repo, paths, revision=revision, repo_type="dataset")
            return [entry for entry in found if isinstance(entry, RepoFile)]

        return told(self._persist(f"{self.repo}@{revision[:8]}", look))


def moved_on(where: str) -> Conflict:
    """Return the error of a commit whose parent is not the head any more."""
    remedy = "look at what is published now, and build on that"
    return Conflict("STORE_CONFLICT", where, "somebody else has published meanwhile", remedy=remedy)

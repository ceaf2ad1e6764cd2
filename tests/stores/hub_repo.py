"""What the contract server knows: datasets with their whole history, and large files by hash; and its API on them.

Each method of `Hub` answers one kind of request as the Hub does. What is large goes by the way of LFS: a batch asks
where to, the storage takes the bytes, `verify` confirms them, and a commit names them by hash.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import functools
import hashlib
import json
import re
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LARGE_BYTES, LARGE_NAMES = 10 << 10, (".u16le", ".u64le", ".bin", ".parquet")


@dataclass(frozen=True)
class HubFile:
    content: bytes
    large: bool

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @functools.cached_property
    def git_sha1(self) -> str:
        raw = self.content
        if self.large:
            raw = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(raw)}\n".encode()
        return hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()

    def told(self, path: str) -> dict[str, Any]:
        """Return the entry of a tree."""
        entry: dict[str, Any] = {"type": "file", "oid": self.git_sha1, "size": len(self.content), "path": path}
        if self.large:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.content), "pointerSize": 134}
        return entry


@dataclass(frozen=True)
class Commit:
    id: str
    title: str
    tree: dict[str, HubFile]


@dataclass
class Repo:
    """A dataset: the commits of `main`, oldest first, and its tags."""

    private: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def head(self) -> Commit:
        return next(reversed(self.commits.values()))

    def at(self, revision: str) -> Commit | None:
        named = self.head.id if revision == "main" else self.tags.get(revision, revision)
        return self.commits.get(named)

    def add(self, title: str, tree: dict[str, HubFile]) -> Commit:
        parent = self.head.id if self.commits else ""
        listing = "".join(f"{path} {file.git_sha1}\n" for path, file in sorted(tree.items()))
        made = Commit(hashlib.sha1(f"{parent}\n{title}\n{listing}".encode()).hexdigest(), title, tree)
        self.commits[made.id] = made
        return made


class Answer(NamedTuple):
    status: int
    value: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed


def refusal(status: int, message: str, code: str = "") -> Answer:
    return Answer(status, {"error": message}, {"X-Error-Code": code, "X-Error-Message": message})


class Hub:
    """The state and the API. `page` is how many entries of a tree come at once."""

    def __init__(self, endpoint: str, storage: str) -> None:
        self.endpoint, self.storage, self.page = endpoint, storage, 1000
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}

    def large(self, content: bytes) -> HubFile:
        """Return a large file that the storage holds."""
        self.objects[(file := HubFile(content, large=True)).sha256] = content
        return file

    def create(self, body: bytes) -> Answer:
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        url = {"url": f"{self.endpoint}/datasets/{name}"}
        if name in self.repos:
            return Answer(409, url | {"error": "You already created this dataset repo"})
        self.repos[name] = Repo(asked.get("visibility") == "private")
        attributes = "".join(f"*{name} filter=lfs diff=lfs merge=lfs -text\n" for name in LARGE_NAMES)
        self.repos[name].add("initial commit", {".gitattributes": HubFile(attributes.encode(), large=False)})
        return Answer(200, url)

    def yaml(self, body: bytes) -> Answer:
        if re.match(r"---\n(\S.*\n)+---\n", json.loads(body)["content"]):
            return Answer(200, {"errors": [], "warnings": []})
        return Answer(400, {"errors": [{"message": "no metadata between lines of ---"}], "warnings": []})

    def info(self, name: str, repo: Repo, commit: Commit) -> Answer:
        siblings = [{"rfilename": path} for path in sorted(commit.tree)]
        return Answer(200, {"id": name, "sha": commit.id, "private": repo.private, "siblings": siblings})

    def preupload(self, commit: Commit, body: bytes) -> Answer:
        asked = json.loads(body)
        there = commit.tree.get(".gitignore", HubFile(b"", large=False)).content.decode()
        rules = [rule for rule in asked.get("gitIgnore", there).splitlines() if rule]
        files = []
        for file in asked["files"]:
            path, found = file["path"], commit.tree.get(file["path"])
            large = file["size"] > LARGE_BYTES or path.endswith(LARGE_NAMES)
            ignored = any(fnmatch.fnmatch(part, rule) for rule in rules for part in (path, path.rpartition("/")[2]))
            files.append({"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": ignored})
            if found:
                files[-1]["oid"] = found.sha256 if found.large else found.git_sha1
        return Answer(200, {"files": files})

    def batch(self, name: str, body: bytes) -> Answer:
        objects = []
        for asked in json.loads(body)["objects"]:
            objects.append({"oid": asked["oid"], "size": asked["size"]})
            if asked["oid"] not in self.objects:
                verify = {"href": f"{self.endpoint}/datasets/{name}.git/info/lfs/objects/verify"}
                upload = {"href": f"{self.storage}/{asked['oid']}"}
                objects[-1]["actions"] = {"upload": upload, "verify": verify}
        return Answer(200, {"transfer": "basic", "objects": objects})

    def upload(self, oid: str, body: bytes, authorization: str | None) -> Answer:
        if authorization:
            return refusal(400, "Only one auth mechanism allowed")
        self.objects[oid] = body
        return Answer(200)

    def verify(self, body: bytes) -> Answer:
        asked = json.loads(body)
        found = self.objects.get(asked["oid"], b"")
        if (hashlib.sha256(found).hexdigest(), len(found)) != (asked["oid"], asked["size"]):
            self.objects.pop(asked["oid"], None)
            return refusal(422, "the object is not what it was announced to be")
        return Answer(200, {})

    def commit(self, name: str, repo: Repo, body: bytes) -> Answer:
        lines = [json.loads(line) for line in body.splitlines()]
        header, tree = lines[0]["value"], dict(repo.head.tree)
        if header.get("parentCommit", repo.head.id) != repo.head.id:
            return refusal(412, "A commit has happened since. Please refresh and try again.")
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                try:
                    tree[value["path"]] = HubFile(base64.b64decode(value["content"], validate=True), large=False)
                except binascii.Error:
                    return refusal(400, "content is not base64")
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.objects:
                    return refusal(400, f"LFS pointer pointed to a file that does not exist: {value['path']}")
                tree[value["path"]] = HubFile(self.objects[value["oid"]], large=True)
            elif line["key"] == "deletedFile":
                tree.pop(value["path"])
        made = repo.add(header["summary"], tree)
        url = f"{self.endpoint}/datasets/{name}/commit/{made.id}"
        return Answer(200, {"success": True, "commitOid": made.id, "commitUrl": url, "hookOutput": ""})

    def tree(self, name: str, commit: Commit, folder: str, query: dict[str, list[str]]) -> Answer:
        below = sorted(path for path in commit.tree if path.startswith(f"{folder}/" if folder else ""))
        if not below and folder:
            return refusal(404, f"{folder} does not exist on {commit.id}", "EntryNotFound")
        folders = sorted({path.rpartition("/")[0] for path in below} - {"", folder})
        entries = [{"type": "directory", "oid": 40 * "0", "size": 0, "path": path} for path in folders]
        entries += [commit.tree[path].told(path) for path in below]
        begin = int(query.get("cursor", ["0"])[0])
        following = f"{self.endpoint}/api/datasets/{name}/tree/{commit.id}/{urllib.parse.quote(folder)}".rstrip("/")
        link = f'<{following}?recursive=true&cursor={begin + self.page}>; rel="next"'
        more = {"Link": link} if begin + self.page < len(entries) else {}
        return Answer(200, entries[begin : begin + self.page], more)

    def paths(self, commit: Commit, body: bytes) -> Answer:
        asked = urllib.parse.parse_qs(body.decode())["paths"]
        return Answer(200, [commit.tree[path].told(path) for path in asked if path in commit.tree])

    def commits(self, repo: Repo, commit: Commit) -> Answer:
        ids = list(repo.commits)[list(repo.commits).index(commit.id) :: -1]
        date = "2026-01-02T03:04:05.000Z"
        named = [{"id": id, "title": repo.commits[id].title, "message": "", "date": date, "authors": []} for id in ids]
        return Answer(200, named)

    def refs(self, repo: Repo) -> Answer:
        branches = [{"name": "main", "ref": "refs/heads/main", "targetCommit": repo.head.id}]
        tags = [{"name": tag, "ref": f"refs/tags/{tag}", "targetCommit": id} for tag, id in repo.tags.items()]
        return Answer(200, {"branches": branches, "converts": [], "tags": tags})

    def tag(self, repo: Repo, commit: Commit, body: bytes) -> Answer:
        repo.tags[json.loads(body)["tag"]] = commit.id
        return Answer(200, {})

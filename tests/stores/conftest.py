"""The servers that tests share. That of S3 takes about 3.5 s to start, and holds what any test left."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.stores.hub_server import HubServer, hub_server
from tests.stores.s3_server import BUCKET, Server, Wire, aws_environment, seaweed, wire

TOKEN = "hf_secret0123456789"


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture
def s3_url(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of its own for each test, to which the environment points."""
    set_environment(monkeypatch, s3_server.port)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/below"


@pytest.fixture
def s3_wire(s3_server: Server, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """The way to the server, on which requests may go wrong."""
    with wire(s3_server.port) as proxy:
        set_environment(monkeypatch, proxy.port)
        yield proxy


@pytest.fixture(scope="module")
def serving() -> Iterator[HubServer]:
    with hub_server() as server:
        yield server


@pytest.fixture
def contract_server(serving: HubServer, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """A Hub on which nothing lies, to which the environment points."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", serving.endpoint)
    serving.clear()
    return serving


def set_environment(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in aws_environment(port).items():
        monkeypatch.setenv(name, value)

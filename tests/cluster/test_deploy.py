"""What is in `deploy/`, as far as one can look without a cluster: Dagster reads it, and no two files disagree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest
from dagster._config import validate_config
from dagster._core.instance.config import dagster_instance_config
from dagster_shared.yaml_utils import load_yaml_from_path

from tests.cluster.machines import CHECKOUT

DEPLOY = CHECKOUT / "deploy"
KINDS = ["cluster", "kubernetes", "one-person", "one-server"]
LIBPQ = {"PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE"}


def _settings(kind: str) -> dict[str, Any]:
    return _yaml(f"{kind}/dagster.yaml")


def _yaml(path: str) -> dict[str, Any]:
    read = load_yaml_from_path(str(DEPLOY / path))
    assert isinstance(read, dict)
    return read


def _variables(value: object) -> set[str]:
    """Return the environment variables that settings ask for."""
    if isinstance(value, dict):
        named = {value["env"]} if set(value) == {"env"} else set()
        return named.union(*map(_variables, value.values()))
    return set().union(*map(_variables, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("kind", KINDS)
def test_dagster_reads_the_settings(kind: str) -> None:
    read, _ = dagster_instance_config(str(DEPLOY / kind))
    assert (read["telemetry"], read["nux"]) == ({"enabled": False}, {"enabled": False})


def test_every_kind_is_known() -> None:
    assert sorted(path.parent.name for path in DEPLOY.glob("*/dagster.yaml")) == KINDS


def test_what_works_unattended_is_set_alike() -> None:
    """But for what the launcher decides: how many at once, and how long a run may wait for a place."""
    server, *others = (_settings(kind) for kind in ("one-server", "cluster", "kubernetes"))
    for settings in others:
        for name in ("storage", "run_queue", "run_retries", "retention"):
            assert settings[name] == server[name]
        assert settings["run_monitoring"] == {**server["run_monitoring"], "start_timeout_seconds": 900}


def test_the_environment_has_every_variable_that_is_asked_for() -> None:
    lines = [line for line in (DEPLOY / "cluster/environment").read_text().splitlines() if not line.startswith("#")]
    named = {line.partition("=")[0] for line in lines}
    assert _variables(_settings("one-server")) == LIBPQ
    assert _variables(_settings("cluster")) == LIBPQ | {"CASEBITS_BROKER"}
    stores = {"CASEBITS_STORE", "CASEBITS_HOME", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID"}
    assert named == LIBPQ | {"CASEBITS_BROKER", "CASEBITS_REGIONS_A_RUN", "AWS_SECRET_ACCESS_KEY"} | stores


def test_what_cannot_be_run_here_says_so_first() -> None:
    for path in sorted((DEPLOY / "kubernetes").iterdir()):
        first = " ".join(path.read_text().splitlines()[:3])
        assert re.findall("There was n[^.:]*", first) != []


def test_the_values_for_helm_say_what_the_instance_file_says() -> None:
    values, settings = _yaml("kubernetes/values.yaml"), _settings("kubernetes")
    daemon, launcher = values["dagsterDaemon"], values["runLauncher"]["config"]["k8sRunLauncher"]
    queue = daemon["runCoordinator"]["config"]["queuedRunCoordinator"]
    at_once = {"max_concurrent_runs": settings["concurrency"]["runs"]["max_concurrent_runs"]}
    assert _snake(queue) == {**settings["run_queue"], **at_once}
    assert _snake(daemon["runMonitoring"]) == settings["run_monitoring"]
    assert _snake(daemon["runRetries"]) == settings["run_retries"]
    config = settings["run_launcher"]["config"]
    image = launcher["image"]
    assert f"{image['repository']}:{image['tag']}" == config["job_image"]
    assert (launcher["volumes"], launcher["volumeMounts"]) == (config["volumes"], config["volume_mounts"])
    assert (launcher["resources"], launcher["jobNamespace"]) == (config["resources"], config["job_namespace"])
    assert values["postgresql"]["postgresqlScheme"] == settings["storage"]["custom"]["config"]["postgres_db"]["scheme"]


def _snake(values: dict[str, Any]) -> dict[str, Any]:
    return {re.sub("([A-Z])", r"_\1", name).lower(): value for name, value in values.items()}


def test_the_cluster_has_a_lock_of_its_own() -> None:
    pattern = r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+"
    mine, base = ((CHECKOUT / f"requirements{name}.lock").read_text().splitlines() for name in ("-cluster", ""))
    assert [line for line in mine if not re.fullmatch(pattern, line)] == []
    names = [[re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in lines] for lines in (mine, base)]
    assert names[0] == sorted(names[0])
    assert set(names[0]) & set(names[1]) == set()
    assert {"dagster-celery", "dagster-k8s", "dagster-postgres", "redis"} - set(names[0]) == set()


def _dockerfile(instruction: str) -> list[str]:
    lines = (DEPLOY / "kubernetes/Dockerfile").read_text().splitlines()
    return [line.partition(" ")[2] for line in lines if line.startswith(f"{instruction} ")]


def test_what_the_image_copies_is_there() -> None:
    sources = [source for line in _dockerfile("COPY") for source in line.split()[:-1]]
    assert [source for source in sources if not (CHECKOUT / source).exists()] == []


@pytest.mark.slow
def test_the_launcher_of_kubernetes_knows_its_settings() -> None:
    launcher = pytest.importorskip("dagster_k8s", reason="pip install -r requirements-cluster.lock").K8sRunLauncher
    config = _settings("kubernetes")["run_launcher"]["config"]
    assert validate_config(launcher.config_type(), config).success is True
    (error,) = validate_config(launcher.config_type(), {**config, "job_imag": "x"}).errors or []
    assert 'unexpected config entry "job_imag"' in error.message


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_image_builds_and_its_command_loads_the_graph(tmp_path: Path) -> None:
    """The steps of the Dockerfile, in a new environment in place of its base image; then what its command loads."""
    folder = tmp_path / "casebits"
    folder.mkdir()
    venv.create(tmp_path / "venv", with_pip=True)
    ignored = shutil.ignore_patterns("__pycache__")
    steps = [line for line in (DEPLOY / "kubernetes/Dockerfile").read_text().splitlines() if re.match("COPY|RUN", line)]
    for step in steps:
        kind, _, rest = step.partition(" ")
        if kind == "RUN":
            _run(rest.replace("--no-cache-dir", "-qq --disable-pip-version-check"), tmp_path / "venv", folder)
            continue
        *sources, target = rest.split()
        for source in sources:
            if (CHECKOUT / source).is_dir():
                shutil.copytree(CHECKOUT / source, folder / target, ignore=ignored)
            else:
                shutil.copy(CHECKOUT / source, folder / target)
    (command,) = _dockerfile("CMD")
    words = json.loads(command)
    assert words[:3] == ["dagster", "api", "grpc"]
    module = words[words.index("--module-name") + 1]
    said = _run(f"dagster definitions validate -m {module} 2>&1", tmp_path / "venv", folder)
    assert "Validation successful" in said


def _run(step: str, environment: Path, folder: Path) -> str:
    variables = {"PATH": f"{environment}/bin:/usr/bin:/bin", "HOME": str(folder), "CASEBITS_HOME": str(folder / "home")}
    passed = {name: value for name, value in _proxies().items() if name not in variables}
    done = subprocess.run(["sh", "-ec", step], cwd=folder, env=passed | variables, capture_output=True, text=True)
    assert (done.returncode, done.stderr[-2000:] if done.returncode else "") == (0, "")
    return done.stdout


def _proxies() -> dict[str, str]:
    """Return what tells pip where packages come from."""
    return {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_", "HTTP"))}

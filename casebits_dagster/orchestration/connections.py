"""PostgreSQL as Dagster's database, with connections that are kept: `storage: custom:` of an instance's settings.

dagster-postgres connects anew for every statement, and a region takes some fifty of them, from the daemon's plan of it
to its last check: three quarters of their time is the connecting.
"""

from __future__ import annotations

from typing import Any

from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage
from dagster_postgres.utils import create_pg_engine, get_token_provider_from_config

_KEPT = 2
"""Connections of each of the three stores that are kept: a query of events asks a second one in between. More that are
needed at the same time, by other threads, are closed again."""


class KeptPostgresStorage(DagsterPostgresStorage):  # type: ignore[misc]
    """Makes dagster-postgres's own storage, of the same configuration, over connections that are kept."""

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> DagsterPostgresStorage:
        """Return the storage. Raises what the library raises when it cannot connect."""
        storage = super().from_config_value(inst_data, config_value)
        for part in (storage._run_storage, storage._event_log_storage, storage._schedule_storage):
            part._engine = create_pg_engine(
                storage.postgres_url,
                get_token_provider_from_config(config_value),
                isolation_level="AUTOCOMMIT",
                pool_size=_KEPT,
                max_overflow=-1,
                # Each is asked before it is used: the server may be started anew in the hours of a batch.
                pool_pre_ping=True,
            )
        return storage

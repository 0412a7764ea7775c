"""The store on one database, whichever it is: short transactions with a promise about the disk, and readers that never wait."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from controlplane.adapters.cold import ColdStorage
from controlplane.adapters.databases import Place, open_database, translated
from controlplane.adapters.migrate import migrate
from controlplane.adapters.sql_access import SqlAttempts, SqlAudits, SqlPermissions, SqlTaskList, SqlTenants
from controlplane.adapters.sql_accounts import SqlAnswers, SqlBudgets, SqlSteers
from controlplane.adapters.sql_archive import SqlArchive
from controlplane.adapters.sql_backlog import SqlBacklog
from controlplane.adapters.sql_controls import SqlControls, SqlRetunes
from controlplane.adapters.sql_findings import SqlFigures, SqlFindings
from controlplane.adapters.sql_history import SqlHistory, SqlTasks
from controlplane.adapters.sql_jobs import SqlJobs
from controlplane.adapters.sql_keys import SqlKeys
from controlplane.adapters.sql_leases import SqlLeases
from controlplane.adapters.sql_remote import SqlRemote
from controlplane.adapters.sql_requests import SqlOwned, SqlRepeats, SqlUploads
from controlplane.adapters.sql_traces import SqlTraces
from controlplane.adapters.sql_workers import SqlDuties, SqlWorkers
from controlplane.ports import (
    Answers,
    Archive,
    Budgets,
    Cold,
    Durability,
    History,
    Jobs,
    Leases,
    Steers,
    Tasks,
    Traces,
    Watch,
)
from controlplane.ports_access import (
    Attempts,
    Audits,
    Keys,
    Owned,
    Permissions,
    Repeats,
    TaskList,
    Tenants,
    Uploads,
)
from controlplane.ports_control import Controls, Figures, Findings, Retunes
from controlplane.ports_queue import Backlog, Duties, Workers
from controlplane.ports_remote import Remote


class SqlTransaction:
    """One transaction and the rows in it. When it writes, each row that it reads to decide is its own until it ends."""

    def __init__(self, connection: sa.Connection, *, now_ms: int, is_writing: bool, cold: Cold) -> None:
        self.now_ms = now_ms
        self.jobs: Jobs = SqlJobs(connection, now_ms=now_ms, is_writing=is_writing)
        self.tasks: Tasks = SqlTasks(connection, is_writing=is_writing)
        self.leases: Leases = SqlLeases(connection, now_ms=now_ms, is_writing=is_writing)
        self.history: History = SqlHistory(connection, now_ms=now_ms, cold=cold)
        self.traces: Traces = SqlTraces(connection, cold=cold)
        self.budgets: Budgets = SqlBudgets(connection, now_ms=now_ms, is_writing=is_writing)
        self.steers: Steers = SqlSteers(connection, now_ms=now_ms)
        self.answers: Answers = SqlAnswers(connection, now_ms=now_ms)
        self.keys: Keys = SqlKeys(connection, now_ms=now_ms)
        self.tenants: Tenants = SqlTenants(connection, now_ms=now_ms)
        self.permissions: Permissions = SqlPermissions(connection, now_ms=now_ms)
        self.audits: Audits = SqlAudits(connection, now_ms=now_ms)
        self.repeats: Repeats = SqlRepeats(connection, now_ms=now_ms)
        self.uploads: Uploads = SqlUploads(connection, now_ms=now_ms)
        self.owned: Owned = SqlOwned(connection, now_ms=now_ms)
        self.attempts: Attempts = SqlAttempts(connection)
        self.task_list: TaskList = SqlTaskList(connection)
        self.backlog: Backlog = SqlBacklog(connection, now_ms=now_ms)
        self.workers: Workers = SqlWorkers(connection, now_ms=now_ms)
        self.duties: Duties = SqlDuties(connection, now_ms=now_ms)
        self.archive: Archive = SqlArchive(connection, now_ms=now_ms)
        self.controls: Controls = SqlControls(connection, now_ms=now_ms)
        self.retunes: Retunes = SqlRetunes(connection, now_ms=now_ms)
        self.findings: Findings = SqlFindings(connection, now_ms=now_ms)
        self.figures: Figures = SqlFigures(connection, now_ms=now_ms)
        self.remote: Remote = SqlRemote(connection, now_ms=now_ms)


class SqlStore:
    """A file of SQLite, or a database of PostgreSQL."""

    def __init__(self, place: Place, *, cold: Cold | None = None) -> None:
        """`cold`: where links that left the tables are; beside the file when there is one and nothing else is said."""
        self.place = place
        self.cold: Cold = cold or ColdStorage(place.parent / "cold" if isinstance(place, Path) else "cold")
        self.database = open_database(place)
        self.notice = self.database.notice
        try:
            with translated(self.database):
                migrate(self.database)
        except BaseException:
            self.database.close()
            raise

    @contextmanager
    def write(self, durability: Durability = "full") -> Iterator[SqlTransaction]:
        with translated(self.database), self.database.begin(durability) as (connection, now_ms):
            yield SqlTransaction(connection, now_ms=now_ms, is_writing=True, cold=self.cold)

    @contextmanager
    def read(self) -> Iterator[SqlTransaction]:
        with translated(self.database), self.database.begin("read") as (connection, now_ms):
            yield SqlTransaction(connection, now_ms=now_ms, is_writing=False, cold=self.cold)

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        with translated(self.database), self.database.watch() as watch:
            yield watch

    def announce(self, job_id: str = "") -> None:
        self.database.announce(job_id)

    def close(self) -> None:
        self.database.close()

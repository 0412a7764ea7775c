"""The store on one database, whichever it is: short transactions with a promise about the disk, and readers that never wait."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    """One transaction and the rows in it. When it writes, each row that it reads to decide is its own until it ends.

    Most touch few tables: what speaks for a table is made when it is asked for.
    """

    now_ms: int
    jobs: Jobs
    tasks: Tasks
    leases: Leases
    history: History
    traces: Traces
    budgets: Budgets
    steers: Steers
    answers: Answers
    keys: Keys
    tenants: Tenants
    permissions: Permissions
    audits: Audits
    repeats: Repeats
    uploads: Uploads
    owned: Owned
    attempts: Attempts
    task_list: TaskList
    backlog: Backlog
    workers: Workers
    duties: Duties
    archive: Archive
    controls: Controls
    retunes: Retunes
    findings: Findings
    figures: Figures
    remote: Remote

    def __init__(self, connection: sa.Connection, *, now_ms: int, is_writing: bool, cold: Cold) -> None:
        self.now_ms = now_ms
        self.connection = connection
        self.is_writing = is_writing
        self.cold = cold

    def __getattr__(self, name: str) -> Any:
        """Called once for each table: what it makes is found as an attribute from then on."""
        if name not in _TABLES:
            raise AttributeError(name)
        made = _TABLES[name](self)
        setattr(self, name, made)
        return made


_TABLES: dict[str, Callable[[SqlTransaction], Any]] = {
    "jobs": lambda tx: SqlJobs(tx.connection, now_ms=tx.now_ms, is_writing=tx.is_writing),
    "tasks": lambda tx: SqlTasks(tx.connection, is_writing=tx.is_writing),
    "leases": lambda tx: SqlLeases(tx.connection, now_ms=tx.now_ms, is_writing=tx.is_writing),
    "history": lambda tx: SqlHistory(tx.connection, now_ms=tx.now_ms, cold=tx.cold),
    "traces": lambda tx: SqlTraces(tx.connection, cold=tx.cold),
    "budgets": lambda tx: SqlBudgets(tx.connection, now_ms=tx.now_ms, is_writing=tx.is_writing),
    "steers": lambda tx: SqlSteers(tx.connection, now_ms=tx.now_ms),
    "answers": lambda tx: SqlAnswers(tx.connection, now_ms=tx.now_ms),
    "keys": lambda tx: SqlKeys(tx.connection, now_ms=tx.now_ms),
    "tenants": lambda tx: SqlTenants(tx.connection, now_ms=tx.now_ms),
    "permissions": lambda tx: SqlPermissions(tx.connection, now_ms=tx.now_ms),
    "audits": lambda tx: SqlAudits(tx.connection, now_ms=tx.now_ms),
    "repeats": lambda tx: SqlRepeats(tx.connection, now_ms=tx.now_ms),
    "uploads": lambda tx: SqlUploads(tx.connection, now_ms=tx.now_ms),
    "owned": lambda tx: SqlOwned(tx.connection, now_ms=tx.now_ms),
    "attempts": lambda tx: SqlAttempts(tx.connection),
    "task_list": lambda tx: SqlTaskList(tx.connection),
    "backlog": lambda tx: SqlBacklog(tx.connection, now_ms=tx.now_ms),
    "workers": lambda tx: SqlWorkers(tx.connection, now_ms=tx.now_ms),
    "duties": lambda tx: SqlDuties(tx.connection, now_ms=tx.now_ms),
    "archive": lambda tx: SqlArchive(tx.connection, now_ms=tx.now_ms),
    "controls": lambda tx: SqlControls(tx.connection, now_ms=tx.now_ms),
    "retunes": lambda tx: SqlRetunes(tx.connection, now_ms=tx.now_ms),
    "findings": lambda tx: SqlFindings(tx.connection, now_ms=tx.now_ms),
    "figures": lambda tx: SqlFigures(tx.connection, now_ms=tx.now_ms),
    "remote": lambda tx: SqlRemote(tx.connection, now_ms=tx.now_ms),
}


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

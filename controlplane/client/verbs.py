"""What both clients can do, written once: a verb is a function that builds a request, and each client carries it out its way."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from controlplane.api.bodies import Page
from controlplane.client import admin_calls, file_calls, job_calls, plans
from controlplane.client.calls import Call, Plan

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """A client whose verbs return when it is done."""

    def do(self, asked: Call[T] | Plan[T]) -> T:
        raise NotImplementedError

    def perform(self, build: Callable[P, Call[T] | Plan[T]]) -> Callable[P, T]:
        @wraps(build)
        def ask(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.do(build(*args, **kwargs))

        return ask

    def turn_pages(self, build: Callable[P, Call[Page[T]]]) -> Callable[P, Iterator[T]]:
        # A list that still grows ends with a page that leads to itself.
        @wraps(build)
        def turn(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            page = self.do(build(*args, **kwargs))
            yield from page.items
            while page.next not in (None, kwargs.get("cursor")):
                kwargs["cursor"] = page.next
                page = self.do(build(*args, **kwargs))
                yield from page.items

        return turn


class Awaiting:
    """A client whose verbs are awaited."""

    async def do(self, asked: Call[T] | Plan[T]) -> T:
        raise NotImplementedError

    def perform(self, build: Callable[P, Call[T] | Plan[T]]) -> Callable[P, Awaitable[T]]:
        @wraps(build)
        async def ask(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.do(build(*args, **kwargs))

        return ask

    def turn_pages(self, build: Callable[P, Call[Page[T]]]) -> Callable[P, AsyncIterator[T]]:
        @wraps(build)
        async def turn(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            page = await self.do(build(*args, **kwargs))
            for item in page.items:
                yield item
            while page.next not in (None, kwargs.get("cursor")):
                kwargs["cursor"] = page.next
                page = await self.do(build(*args, **kwargs))
                for item in page.items:
                    yield item

        return turn


class Verb(Generic[P, T]):
    """One act: a method that gives its outcome, at once or awaited."""

    def __init__(self, build: Callable[P, Call[T]] | Callable[P, Plan[T]]) -> None:
        self._build: Any = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Blocking | Awaiting | None, owner: type) -> Any:
        return self if client is None else client.perform(self._build)


class Listing(Generic[P, T]):
    """A list: a method that gives its items one by one, and asks for the next page when they are needed."""

    def __init__(self, build: Callable[P, Call[Page[T]]]) -> None:
        self._build: Any = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Blocking | Awaiting | None, owner: type) -> Any:
        return self if client is None else client.turn_pages(self._build)


class Verbs:
    """Everything that can be asked of a server."""

    submit = Verb(job_calls.submit)
    job = Verb(job_calls.job)
    versioned_job = Verb(job_calls.versioned_job)
    jobs = Listing(job_calls.jobs)
    wait = Verb(plans.wait)
    run = Verb(plans.run)
    stop = Verb(job_calls.stop)
    kill = Verb(job_calls.kill)
    pause = Verb(job_calls.pause)
    resume = Verb(job_calls.resume)
    steer = Verb(job_calls.steer)
    retune = Verb(job_calls.retune)
    retry = Verb(job_calls.retry)
    complete = Verb(job_calls.complete)
    fork = Verb(job_calls.fork)
    answer = Verb(job_calls.answer)
    attempts = Listing(job_calls.attempts)
    trace = Listing(job_calls.trace)
    result = Verb(job_calls.result)
    questions = Listing(job_calls.questions)
    receipts = Listing(job_calls.receipts)
    artifacts = Listing(job_calls.artifacts)
    bulk = Verb(job_calls.bulk)
    tasks = Listing(job_calls.tasks)
    task = Verb(job_calls.task)

    bring = Verb(plans.bring)
    upload = Verb(plans.upload)
    make_evidence = Verb(file_calls.make_evidence)
    evidence = Verb(file_calls.evidence)

    whoami = Verb(admin_calls.whoami)
    version = Verb(admin_calls.version)
    health = Verb(admin_calls.health)
    readiness = Verb(admin_calls.readiness)
    keys = Listing(admin_calls.keys)
    make_key = Verb(admin_calls.make_key)
    revoke_key = Verb(admin_calls.revoke_key)
    tenants = Listing(admin_calls.tenants)
    make_tenant = Verb(admin_calls.make_tenant)
    change_tenant = Verb(admin_calls.change_tenant)
    permissions = Listing(admin_calls.permissions)
    grant = Verb(admin_calls.grant)
    revoke_permission = Verb(admin_calls.revoke_permission)
    audit = Listing(admin_calls.audit)
    budgets = Listing(admin_calls.budgets)
    set_budget = Verb(admin_calls.set_budget)
    switches = Listing(admin_calls.switches)
    engage = Verb(admin_calls.engage)
    release = Verb(admin_calls.release)
    workers = Listing(admin_calls.workers)
    drain = Verb(admin_calls.drain)
    findings = Listing(admin_calls.findings)
    monitors = Verb(admin_calls.monitors)
    case = Verb(admin_calls.case)

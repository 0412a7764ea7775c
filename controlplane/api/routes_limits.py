"""Budgets of tenants."""

from fastapi import APIRouter
from fastapi.responses import Response

from controlplane.api.bodies import Page
from controlplane.api.bodies_admin import AmountsBody, BudgetBody, LimitsBody
from controlplane.api.calls import Acting, Called, Reply
from controlplane.api.cursors import cursor, text_place
from controlplane.api.operations import Cursor, Limit, NamedId, answers
from controlplane.domain.budget import NANO, Account, Amounts, Limits, nano_usd, usd
from controlplane.handlers import budgets

routes = APIRouter(prefix="/v1/budgets", tags=["budgets"])


@routes.get("", operation_id="list_budgets", **answers(200, Page[BudgetBody]))
async def list_budgets(call: Called, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """What tenants may use, have used, and have set aside; one's own, or all for those who look after all."""

    def act(acting: Acting) -> Reply:
        after = text_place("budgets", cursor)
        found = budgets.page(acting.desk, caller=acting.caller, after=after, limit=limit + 1)
        items = tuple(_body(tenant_id, account) for tenant_id, account in found[:limit])
        return Reply(body=Page[BudgetBody](items=items, next=_next(found, limit)))

    return await call.read(act)


def _next(found: list[tuple[str, Account]], limit: int) -> str | None:
    return cursor("budgets", found[limit - 1][0]) if len(found) > limit else None


@routes.put("/{tenant_id}", operation_id="set_budget", **answers(200, BudgetBody))
async def set_budget(call: Called, tenant_id: NamedId, body: LimitsBody) -> Response:
    """Bound what a tenant may use from now on. No tenant sets its own."""

    def act(acting: Acting) -> Reply:
        limits = Limits(
            subcalls=body.subcalls,
            input_tokens=body.input_tokens,
            output_tokens=body.output_tokens,
            tokens=body.tokens,
            cost_nano_usd=None if body.cost_usd is None else nano_usd(body.cost_usd),
        )
        account = budgets.set_limits(acting.desk, tenant_id, limits=limits, caller=acting.caller)
        return Reply(body=_body(tenant_id, account))

    return await call.write(act)


def _body(tenant_id: str, account: Account) -> BudgetBody:
    limits = account.limits
    return BudgetBody(
        tenant_id=tenant_id,
        limits=LimitsBody(
            subcalls=limits.subcalls,
            input_tokens=limits.input_tokens,
            output_tokens=limits.output_tokens,
            tokens=limits.tokens,
            cost_usd=usd(limits.cost_nano_usd),
        ),
        spent=_amounts(account.spent),
        held=_amounts(account.held),
    )


def _amounts(amounts: Amounts) -> AmountsBody:
    return AmountsBody(
        subcalls=amounts.subcalls,
        input_tokens=amounts.input_tokens,
        output_tokens=amounts.output_tokens,
        cost_usd=amounts.cost_nano_usd / NANO,
    )

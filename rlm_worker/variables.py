"""A look at the variables of a REPL: one cell of ours that calls show_vars(), outside the record's count of cells."""

import sandbox

_SECONDS = 5.0
_NONE = "(the variables could not be listed)"


async def look_at_variables(session: sandbox.Session) -> tuple[str, bool]:
    """The table, and whether the sandbox was lost over it. What it asks of the host is refused: it may change nothing."""
    table, is_lost = _NONE, False
    async for event in session.execute("show_vars()", deadline_seconds=_SECONDS, name="variables"):
        match event:
            case sandbox.HostCall():
                await session.refuse(
                    event.call_id, error="HostCallError", message="no host calls while variables are listed"
                )
            case sandbox.Finished():
                is_lost = event.state_lost
                if event.outcome == "ok":
                    table = event.stdout.strip() or _NONE
            case _:
                pass
    return table, is_lost

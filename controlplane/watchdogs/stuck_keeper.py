"""Stuck keeper: looks for stuck jobs and does what the policy says. The checks are handlers/stuck.py's."""

from collections.abc import Mapping

from controlplane.domain.findings import Action
from controlplane.handlers import stuck
from controlplane.ports import Desk
from controlplane.ports_control import StuckRules


class StuckKeeper:
    """Remembers from one look to the next how fast jobs spend."""

    def __init__(self, desk: Desk, *, rules: StuckRules, policy: Mapping[str, Action]) -> None:
        self._desk = desk
        self._rules = rules
        self._policy = policy
        self._memory = stuck.Memory()

    def run_once(self) -> int:
        """Look once; return how many findings are new."""
        return stuck.keep(self._desk, self._rules, self._policy, memory=self._memory)

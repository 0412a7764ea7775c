"""What a sandbox must hold, as a suite that runs over every backend: `python -m sandbox.conformance --backend namespaces`."""

from sandbox.conformance.case import Case, Refused, Stand, Trial
from sandbox.conformance.suite import CASES, Result, run, stand_for, try_case

__all__ = ["CASES", "Case", "Refused", "Result", "Stand", "Trial", "run", "stand_for", "try_case"]

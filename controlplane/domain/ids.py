"""Names of things. Ids are made outside the domain and only compared in it."""

from typing import Literal, NewType

TaskId = NewType("TaskId", str)
StepId = NewType("StepId", str)
JobId = NewType("JobId", str)
TenantId = NewType("TenantId", str)
ReceiptId = NewType("ReceiptId", str)
#: Grows with every grant of a lease; a write that names an older one is stale.
Fence = NewType("Fence", int)

#: Chains whose old links may leave the tables: a job's trace, a task's events.
Chain = Literal["trace", "event"]

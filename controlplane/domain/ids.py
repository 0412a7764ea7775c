"""Names of things. Ids are made outside the domain and only compared in it."""

from typing import NewType

TaskId = NewType("TaskId", str)
StepId = NewType("StepId", str)
JobId = NewType("JobId", str)
TenantId = NewType("TenantId", str)
ReceiptId = NewType("ReceiptId", str)
#: Grows with every grant of a lease; a write that names an older one is stale.
Fence = NewType("Fence", int)

"""A client of a Custody server, synchronous and asynchronous from one core. Needs no part of the server but its bodies."""

from controlplane.client.awaiting import AsyncClient
from controlplane.client.blocking import Client
from controlplane.client.calls import Versioned
from controlplane.client.errors import ClientError
from controlplane.client.retrying import Patience
from controlplane.client.streams import Update

__all__ = ["AsyncClient", "Client", "ClientError", "Patience", "Update", "Versioned"]

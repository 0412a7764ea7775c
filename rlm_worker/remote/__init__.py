"""A worker on another machine: the gateway over HTTP, evidence by content, and the program `custody-worker`."""

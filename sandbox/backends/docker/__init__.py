"""The docker backend: one long-lived container per session, by runc or gVisor, spoken to over its attached pipe."""

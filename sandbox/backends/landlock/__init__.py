"""The degraded backend, had by name only: Landlock, a system call filter and rlimits, without any namespace."""

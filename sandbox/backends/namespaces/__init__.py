"""Linux namespaces through a clean zygote, in plain Python and ctypes."""

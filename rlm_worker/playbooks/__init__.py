"""The shipped playbooks: programs for people to read, copy and change. They are read as text, never imported."""

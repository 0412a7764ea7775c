"""Who writes the cells: a model, a playbook, or a recording. One protocol for all three."""

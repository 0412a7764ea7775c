"""Where evidence comes from: files, standard input, archives, git, URLs, artifacts of other jobs."""

"""Run as a process that may be told to die: opens a home and moves what is old to cold storage."""

import sys
from datetime import timedelta

from controlplane.bootstrap import open_app
from controlplane.config import load_settings

if __name__ == "__main__":
    app = open_app(load_settings({"home": sys.argv[1]}))
    app.cool(older_than=timedelta(0))
    app.close()

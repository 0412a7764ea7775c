"""Workflows of one step under DBOS, in an environment of its own: `python dbos_peer.py URL COUNT THREADS` prints their seconds."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS


@DBOS.step()
def step() -> int:
    return 1


@DBOS.workflow()
def workflow() -> int:
    return step()


def main() -> None:
    url, count, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    DBOS(
        config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False}
    )
    DBOS.launch()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: workflow(), range(threads)))  # connections, caches
        began = time.perf_counter()
        list(pool.map(lambda _: workflow(), range(count)))
        print(time.perf_counter() - began, flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main()

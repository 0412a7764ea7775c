"""Our jobs against the same model, in a fresh process: prints what `peer_jobs.py` prints, and where a start goes."""

import json
import sys
import time


def main() -> None:
    url, jobs = sys.argv[1], int(sys.argv[2])
    began = time.monotonic()
    from bench.home import Home, Ran, a_request

    said: list[dict[str, float]] = [{"import": time.monotonic() - began}]
    began = time.monotonic()
    with Home() as home:
        said[0]["open"] = time.monotonic() - began
        for _ in range(jobs):
            began = time.monotonic()
            ran: Ran = home.run(a_request(model=f"{url}#ours"))
            parts = {
                "claimed": ran.moment("attempt_started") / 1000,
                "sandbox": ran.moment("sandbox_opened") / 1000,
                "asked": ran.moment("model_asked") / 1000,
                "cell": ran.moment("cell_finished") / 1000,
            }
            said.append({"began": began, "ended": began + ran.seconds, **parts})
    for line in said:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

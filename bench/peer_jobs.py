"""Jobs of one peer against a model at a URL, in the peer's own interpreter: standard library and that peer only.

    python peer_jobs.py PEER URL ITERATIONS JOBS

Prints a JSON line for the import and one for each job: the moments (CLOCK_MONOTONIC) at which it began and ended.
"""

import contextlib
import http.client
import io
import json
import os
import sys
import time
from urllib.parse import urlsplit

SPARE_ITERATIONS = 5


def floor(url: str, _iterations: int):
    """What nobody can be faster than: one kept-alive connection and exec, with nothing around it."""
    place = urlsplit(url)

    def job() -> None:
        connection = http.client.HTTPConnection(place.hostname, place.port)
        namespace: dict[str, object] = {"answer": {}}
        history = [{"role": "system", "content": "x" * 5000}]
        while "ready" not in namespace["answer"]:
            body = json.dumps({"model": "rlms", "messages": history})
            connection.request(
                "POST", place.path + "/chat/completions", body, {"Content-Type": "application/json"}
            )
            said = json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(said.split("```repl\n", 1)[1].rsplit("\n```", 1)[0], namespace)
            history += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": printed.getvalue()},
            ]
        connection.close()

    return job


def rlms(url: str, iterations: int):
    from rlm import RLM

    def job() -> None:
        asked = {"model_name": "rlms", "base_url": url, "api_key": "none"}
        made = RLM(
            backend="openai",
            backend_kwargs=asked,
            environment="local",
            max_iterations=iterations + SPARE_ITERATIONS,
        )
        made.completion("line of text\n" * 100, root_prompt="q")

    return job


def dspy_rlm(url: str, iterations: int, *, is_local: bool):
    import dspy

    model = dspy.LM("openai/dspy", api_base=url, api_key="none", cache=False)
    dspy.configure(lm=model, adapter=dspy.ChatAdapter())
    import_map = os.environ.get("BENCH_IMPORT_MAP")

    def deno():
        made = dspy.PythonInterpreter()
        made.deno_command.insert(made.deno_command.index("--no-lock"), f"--import-map={import_map}")
        return made

    deno.execution_instructions = getattr(dspy.PythonInterpreter, "execution_instructions", "")

    def job() -> None:
        made = dspy.RLM(
            "context, query -> answer: str",
            max_iters=iterations + SPARE_ITERATIONS,
            interpreter_factory=dspy.LocalInterpreter if is_local else deno,
        )
        made(context="line of text\n" * 100, query="q")

    return job


PEERS = {
    "floor": floor,
    "rlms": rlms,
    "dspy-local": lambda url, iterations: dspy_rlm(url, iterations, is_local=True),
    "dspy-deno": lambda url, iterations: dspy_rlm(url, iterations, is_local=False),
}


def main() -> None:
    name, url, iterations, jobs = sys.argv[1:]
    began = time.monotonic()
    job = PEERS[name](url, int(iterations))
    said = [{"import": time.monotonic() - began}]
    for _ in range(int(jobs)):
        began = time.monotonic()
        with contextlib.redirect_stdout(sys.stderr):
            job()
        said.append({"began": began, "ended": time.monotonic()})
    for line in said:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

"""Jobs of one peer against a model at a URL, in the peer's own interpreter: standard library and that peer only.

    python peer_jobs.py PEER URL '[{"root": "NAME", "iterations": 20}, …]'

A job may also name `sub` (the model of subcalls), `context` (a file) and `depth`. Prints a JSON line for the import and one
for each job: the moments (CLOCK_MONOTONIC) at which it began and ended.
"""

import contextlib
import http.client
import io
import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

SPARE_ITERATIONS = 5


def text_of(job: dict) -> str:
    """The input as a peer takes it: whole, in memory."""
    return Path(job["context"]).read_text() if job.get("context") else "line of text\n" * 100


def floor(url: str):
    """What nobody can be faster than: one kept-alive connection and exec, with nothing around it."""
    place = urlsplit(url)

    def run(job: dict) -> None:
        connection = http.client.HTTPConnection(place.hostname, place.port)
        namespace: dict[str, object] = {"answer": {}}
        history = [{"role": "system", "content": "x" * 5000}]
        while "ready" not in namespace["answer"]:
            body = json.dumps({"model": job["root"], "messages": history})
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

    return run


def rlms(url: str):
    from rlm import RLM

    def model(name: str) -> dict:
        return {"model_name": name, "base_url": url, "api_key": "none"}

    def run(job: dict) -> None:
        sub = [model(name)] if (name := job.get("sub")) else []
        made = RLM(
            backend="openai",
            backend_kwargs=model(job["root"]),
            environment="local",
            max_iterations=job["iterations"] + SPARE_ITERATIONS,
            max_depth=job.get("depth", 1),
            other_backends=["openai"] if sub else None,
            other_backend_kwargs=sub or None,
        )
        made.completion(text_of(job), root_prompt="q")

    return run


def with_import_map(command: list[str]) -> None:
    """Deno's remote module is taken from this machine."""
    command.insert(command.index("run") + 1, f"--import-map={os.environ['BENCH_IMPORT_MAP']}")


def dspy_rlm(url: str, *, is_local: bool):
    import dspy

    dspy.configure(adapter=dspy.ChatAdapter())

    def deno():
        made = dspy.PythonInterpreter()
        with_import_map(made.deno_command)
        return made

    deno.execution_instructions = getattr(dspy.PythonInterpreter, "execution_instructions", "")

    def model(name: str):
        return dspy.LM(f"openai/{name}", api_base=url, api_key="none", cache=False)

    def run(job: dict) -> None:
        made = dspy.RLM(
            "context, query -> answer: str",
            max_iters=job["iterations"] + SPARE_ITERATIONS,
            max_llm_calls=10_000,
            sub_lm=model(job["sub"]) if job.get("sub") else None,
            interpreter_factory=dspy.LocalInterpreter if is_local else deno,
        )
        with dspy.context(lm=model(job["root"])):
            made(context=text_of(job), query="q")

    return run


def predict_rlm(url: str):
    import dspy
    from predict_rlm import PredictRLM
    from predict_rlm.backends.jspi.backend import JspiBackend

    def model(name: str):
        return dspy.LM(f"openai/{name}", api_base=url, api_key="none", cache=False)

    def run(job: dict) -> None:
        backend = JspiBackend(preinstall_packages=False)
        with_import_map(backend.deno_command)
        made = PredictRLM(
            "context: str, query: str -> answer: str",
            lm=model(job["root"]),
            sub_lm=model(job.get("sub") or job["root"]),
            max_iterations=job["iterations"] + SPARE_ITERATIONS,
            interpreter=backend,
            verbose=False,
        )
        try:
            made(context=text_of(job), query="q")
        finally:
            backend.shutdown()  # its Deno would outlive this process

    return run


PEERS = {
    "floor": floor,
    "rlms": rlms,
    "dspy-local": lambda url: dspy_rlm(url, is_local=True),
    "dspy-deno": lambda url: dspy_rlm(url, is_local=False),
    "predict-rlm": predict_rlm,
}


def main() -> None:
    name, url, jobs = sys.argv[1:]
    began = time.monotonic()
    run = PEERS[name](url)
    print(json.dumps({"import": time.monotonic() - began}), flush=True)
    for job in json.loads(jobs):
        began = time.monotonic()
        with contextlib.redirect_stdout(sys.stderr):
            run(job)
        print(json.dumps({"began": began, "ended": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main()

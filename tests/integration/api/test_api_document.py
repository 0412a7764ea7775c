"""The OpenAPI document: checked in and current, with every refusal, and bodies that a client can use by themselves."""

import json
import subprocess
import sys
from pathlib import Path

from controlplane.api.document import document

ROOT = Path(__file__).parents[3]
OPEN = {"is_alive", "is_ready", "get_version"}


def test_the_document_that_is_checked_in_is_current():
    current = document()

    assert (ROOT / "docs" / "openapi.json").read_text() == current, "run `make openapi`"


def operations():
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
    return [(method, path, said) for path, found in paths.items() for method, said in found.items()]


def test_every_operation_says_how_it_refuses_and_what_it_answers():
    for method, path, said in operations():
        refusals = {status for status in said["responses"] if status >= "400"}
        assert {"400", "401", "403", "404", "409", "413", "415", "422", "429", "500", "503"} <= refusals, path
        for status in refusals:
            content = said["responses"][status]["content"]
            assert content == {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
            }
        assert [status for status in said["responses"] if status < "300"], (method, path)
        assert said["summary"], path
        assert said["description"], path


def test_everybody_says_who_they_are_but_for_health():
    without = {said["operationId"] for _, _, said in operations() if "security" not in said}

    assert without == OPEN


def test_every_order_can_be_repeated_without_harm_and_depend_on_what_was_seen():
    for method, path, said in operations():
        headers = {each["name"] for each in said.get("parameters", []) if each["in"] == "header"}
        if method == "post":
            assert "Idempotency-Key" in headers, path
        if method == "post" and path.startswith("/v1/jobs/"):
            assert "If-Match" in headers, path
            assert "412" in said["responses"], path


def test_bodies_are_pydantic_alone():
    """A client takes them without the server's parts."""
    code = (
        "import sys, controlplane.api.bodies, controlplane.api.bodies_admin, "
        "controlplane.api.bodies_files, controlplane.api.bodies_orders; "
        "print([name for name in ('fastapi', 'sqlalchemy', 'uvicorn', 'jwt', 'starlette') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)

    assert done.stdout.strip() == "[]"


def test_the_command_line_does_not_wait_for_the_server():
    code = "import sys, controlplane.cli.main, controlplane.bootstrap; print([name for name in ('fastapi', 'uvicorn', 'jwt') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)

    assert done.stdout.strip() == "[]"

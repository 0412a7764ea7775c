"""Documents in containers: converted in one, and read in another with all that is known of them."""

import asyncio

import pytest

from controlplane.bootstrap import open_app
from controlplane.config import Settings
from rlm_worker.contracts.job import SandboxPolicy
from rlm_worker.job import EvidenceKeeper
from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.engine import run_job
from tests.integration.worker.test_formats import BOOK, SCHEMA, docs

__all__ = ["docs"]

SANDBOXES = {"runc": "docker", "runsc": "gvisor"}
TRIES = """# %% try
tried = []
for path in ("/evidence/.reading/docs/index.json", "/evidence/.reading/docs/0.txt", "/evidence/docs/new.txt"):
    try:
        open(path, "w")
        tried.append(path)
    except OSError:
        pass
SUBMIT(answer=repr(tried))
"""


@pytest.fixture
def staged(tmp_path, runtime, docs):
    """A home whose documents are converted in containers."""
    app = open_app(Settings(home=tmp_path / "home", sandbox=SANDBOXES[runtime]))
    yield app, app.stage([docs])
    app.close()


def test_a_container_reads_the_text_forms_that_another_made(staged, runtime, own_containers):
    app, refs = staged
    keeper = EvidenceKeeper(seal=app.evidence.seal, changed=app.evidence.changed)
    policy = SandboxPolicy(backend="docker", runtime=runtime)
    spec = a_spec(playbook=BOOK, output_schema=SCHEMA, input_artifacts=refs, sandbox_policy=policy)

    ran = run_job(spec, evidence=keeper)

    assert ran.result.status == "succeeded", ran.result.message
    assert ran.result.citations.missing == ran.result.citations.misquoted == ()
    assert {
        "docs/a.pdf#page=2",
        "docs/a.docx:2",
        "docs/b.xlsx#row=2",
        "docs/p.html:2",
        "docs/w.txt:2",
    } <= set(ran.output["where"])
    again = asyncio.run(verify_replay(spec, ran.gateway.records, evidence=keeper))
    assert again.verified, again
    own_containers.wait_until_none()


def test_what_is_known_of_evidence_cannot_be_written_in_a_container(staged, runtime):
    _, refs = staged
    policy = SandboxPolicy(backend="docker", runtime=runtime)

    ran = run_job(a_spec(playbook=TRIES, input_artifacts=refs, sandbox_policy=policy))

    assert ran.output == {"answer": "[]"}

"""From what a caller asks for to a request that the control plane takes. Nothing that names a place on this machine is taken."""

from controlplane.api.bodies import SandboxWish, SubmitRequest
from controlplane.api.calls import Acting
from controlplane.config import Settings
from controlplane.domain.commands import JobRequest
from controlplane.errors import InvalidRequest
from controlplane.handlers import uploads
from controlplane.worker_parts import SANDBOXES, check_policies, default_models
from rlm_worker.contracts import EvidenceRef
from rlm_worker.contracts.job import ArtifactPolicy, ModelDriver, NetworkPolicy, PlaybookDriver, SandboxPolicy


def request_of(acting: Acting, body: SubmitRequest) -> JobRequest:
    settings = acting.app.settings
    tenant_id = body.tenant_id or uploads.tenant_of(acting.desk, acting.caller)
    driver = body.driver or _default_driver(settings)
    sub_model = body.sub_model or _default_sub_model(settings, driver)
    for model in (driver.model if isinstance(driver, ModelDriver) else None, sub_model):
        _check_model(model, settings)
    check_policies(allow=body.network, collect=body.artifacts.collect)
    return JobRequest(
        task=body.task,
        output_schema=body.output_schema,
        budget=body.budget,
        driver=driver,
        sub_model=sub_model,
        input_artifacts=_evidence(acting, body, tenant_id=tenant_id),
        params=body.params,
        allowed_tools=body.allowed_tools,
        sandbox_policy=_sandbox(body.sandbox, settings),
        network_policy=NetworkPolicy(allow=body.network),
        artifact_policy=ArtifactPolicy(**body.artifacts.model_dump()),
        labels=body.labels,
        tenant_id=tenant_id,
        task_id=body.task_id,
        priority=body.priority,
        not_before=body.not_before,
        deadline=body.deadline,
    )


def _default_driver(settings: Settings) -> ModelDriver:
    model = settings.model or default_models()[0]
    if model is None:
        raise InvalidRequest(
            "nobody is named to write the cells, and this server has no model of its own: name a driver"
        )
    return ModelDriver(model=model)


def _default_sub_model(settings: Settings, driver: ModelDriver | PlaybookDriver) -> str:
    root = driver.model if isinstance(driver, ModelDriver) else None
    return settings.sub_model or root or default_models()[1]


def _check_model(model: str | None, settings: Settings) -> None:
    """A model by its address makes workers call whatever is there, with what the job knows: only those of the settings."""
    if model is None or model in (settings.model, settings.sub_model, *(settings.api_models or "").split()):
        return
    if "://" in model or model.startswith(("/", ".", "~")):
        raise InvalidRequest(
            f"the model {model!r} is named by a place, and this server does not list it: name one as provider:model"
        )


def _evidence(acting: Acting, body: SubmitRequest, *, tenant_id: str) -> tuple[EvidenceRef, ...]:
    return tuple(
        uploads.ref_of(uploads.evidence(acting.desk, use.digest, caller=acting.caller, tenant_id=tenant_id))
        for use in body.evidence
    )


def _sandbox(wish: SandboxWish, settings: Settings) -> SandboxPolicy:
    """What the installation contains cells with, as narrow as the caller likes it; never wider than the settings."""
    backend, runtime = SANDBOXES[settings.sandbox]
    language = settings.language or ("strict" if backend == "landlock" else "open")
    if wish.language == "strict":
        language = "strict"
    elif wish.language == "open" and language == "strict":
        raise InvalidRequest("this server takes strict code only: leave the language out")
    most = SandboxPolicy(cell_seconds=settings.cell_seconds)
    named = wish.model_dump(exclude={"language"}, exclude_none=True)
    for name, value in named.items():
        if value > getattr(most, name):
            raise InvalidRequest(f"sandbox.{name} may be {getattr(most, name):g} here at most, not {value:g}")
    return SandboxPolicy.model_validate(
        {
            "cell_seconds": most.cell_seconds,
            **named,
            "backend": backend,
            "runtime": runtime,
            "language": language,
        }
    )

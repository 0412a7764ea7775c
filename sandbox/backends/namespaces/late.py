"""Evidence for a sandbox that is confined already, brought in from outside by a passing child of the zygote.

The sandbox has run no code yet and has no part in it: its mounts change, its rights do not.
"""

import os

from sandbox.backends.namespaces import confine, kernel, launch, root
from sandbox.backends.namespaces.plan import Plan


def bring_in(
    request: int, template: confine.Template, report: int, namespaces: list[int], *, init: int
) -> None:
    """Mount a plan's evidence in the sandbox whose namespaces are given, and tell the host. Ends this process."""
    try:
        plan = Plan.read(request)
        uid = confine.own_uid(init, template.uids) if template.is_root else None
        with confine.layer("late-evidence"):
            _mount(plan, namespaces, uid=uid)
        _become(uid)
        closed = launch.unreadable(plan)
        launch.tell(report, {"attached": True} if closed is None else {"unreadable": closed})
    except (confine.LayerFailed, OSError) as failure:
        launch.tell_failure(report, failure)
    finally:
        os._exit(0)


def _mount(plan: Plan, namespaces: list[int], *, uid: int | None) -> None:
    mounts, *users = namespaces
    if uid is None:
        # An ordinary user may copy mounts only where the sandbox's own user namespace rules.
        kernel.setns(users[0], kernel.CLONE_NEWUSER)
        kernel.unshare(kernel.CLONE_NEWNS)
    id_maps = {} if uid is None else confine.map_owners(plan.evidence, uid=uid)
    trees = root.Trees(plan.evidence, id_maps=id_maps)
    kernel.setns(mounts, kernel.CLONE_NEWNS)
    os.close(root.mount_collection(trees, root.EVIDENCE, below=root.EVIDENCE))


def _become(uid: int | None) -> None:
    """Take the sandbox's ids and give up every right, so that what can be read here can be read there."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.empty_capabilities()

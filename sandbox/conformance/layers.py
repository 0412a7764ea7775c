"""Cases: the layers, read back from inside and out, whatever the backend says of itself."""

import os
import tempfile
from pathlib import Path

from sandbox.conformance.case import Stand, Trial, case, cases_of

_STATUS = """
report(dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line))
"""
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


async def _status(trial: Trial) -> dict[str, str]:
    """The kernel's word on the process that runs cells: from inside, or from outside where there is no /proc."""
    if await trial.seen("report(os.path.exists('/proc/self/status'))"):
        inside: dict[str, str] = await trial.seen(_STATUS)
        return inside
    text = Path(f"/proc/{trial.session.pid}/status").read_text(encoding="utf-8")
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


@case("Every layer that the policy requires is reported as active.")
async def required_layers_are_reported(stand: Stand) -> None:
    async with stand.open() as trial:
        reported = {layer.partition(":")[0] for layer in trial.session.layers} | set(trial.session.layers)
        reported |= {"cgroup"} if any(name.startswith("cgroup-v") for name in reported) else set()
        missing = trial.policy.required - reported
        assert not missing, f"required and not reported: {sorted(missing)}"


@case("All five capability sets of the code are empty.", needs="caps-empty")
async def capabilities_are_empty(stand: Stand) -> None:
    async with stand.open() as trial:
        status = await _status(trial)
        # An old gVisor does not tell of the ambient set.
        held = {name: status[name] for name in _CAPABILITIES if int(status.get(name, "0"), 16)}
        assert not held, f"capability sets that are not empty: {held}"
        assert "CapEff" in status, "the kernel does not tell of capabilities"


@case(
    "No process of the sandbox can gain privileges by running a program.", needs="no-new-privs shared-kernel"
)
async def no_new_privileges(stand: Stand) -> None:
    async with stand.open() as trial:
        value = (await _status(trial)).get("NoNewPrivs")
        assert value == "1", f"NoNewPrivs is {value}"


@case("A system call filter is active in the process that runs cells.", needs="seccomp shared-kernel")
async def filter_is_active(stand: Stand) -> None:
    async with stand.open() as trial:
        value = (await _status(trial)).get("Seccomp")
        assert value == "2", f"Seccomp is {value}, not 2 (filter)"


@case("The code's user is not root, neither as it sees itself nor as the host sees it.")
async def user_is_not_root(stand: Stand) -> None:
    async with stand.open() as trial:
        inside = await trial.seen("report([*os.getresuid(), *os.getresgid()])")
        assert 0 not in inside, f"ids inside: {inside}"
        if "shared-kernel" in stand.claims:
            text = Path(f"/proc/{trial.session.pid}/status").read_text(encoding="utf-8")
            ids = [line.split() for line in text.splitlines() if line.startswith(("Uid", "Gid"))]
            assert all("0" not in words for words in ids), f"ids as the host sees them: {ids}"


@case("The user of the sandbox is nobody of importance in the namespace outside of it.", needs="own-proc")
async def user_maps_to_no_root(stand: Stand) -> None:
    async with stand.open() as trial:
        uid, lines = await trial.seen(
            "report([os.getuid(), [[int(w) for w in l.split()] for l in open('/proc/self/uid_map')]])"
        )
        outside = [uid - first + mapped for first, mapped, count in lines if first <= uid < first + count]
        assert outside, f"uid {uid} is not mapped by {lines}"
        assert outside[0] != 0, f"uid {uid} is root outside: {lines}"


@case("The code sees and reaches its own processes only.", needs="pid-ns")
async def only_own_processes_are_visible(stand: Stand) -> None:
    async with stand.open() as trial:
        shown, outside = await trial.seen(f"""
def alive(pid):
    try: os.kill(pid, 0)
    except ProcessLookupError: return False
    except PermissionError: pass
    return True
shown = [p for p in (os.listdir('/proc') if os.path.isdir('/proc') else []) if p.isdigit()]
report([shown, alive({os.getpid()}) and {os.getpid()} > 64])
""")
        assert len(shown) <= 8, f"processes seen: {shown}"
        assert not outside, "the host's own process answers to a signal from inside"


@case(
    "Nothing can be written but in the workspace and the sandbox's own temporary directory.", needs="mount-ns"
)
async def only_two_places_can_be_written(stand: Stand) -> None:
    async with stand.open() as trial:
        found = await trial.seen("""
found = []
for path, directories, files in os.walk('/'):
    if path.startswith('/proc') or path.count('/') > 3:
        directories[:] = []
        continue
    try:
        os.close(os.open(path + '/.trial', os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.unlink(path + '/.trial')
        found.append(path)
        directories[:] = []
    except OSError:
        pass
report(found)
""")
        # A container engine gives /dev/shm, of the container's own and counted as its memory.
        beyond = set(found) - {"/workspace", "/tmp", "/dev/shm"}  # noqa: S108 - the sandbox's own
        assert not beyond, f"can be written: {sorted(beyond)}"
        assert {"/workspace", "/tmp"} <= set(found), f"the code's own places cannot be written: {found}"  # noqa: S108


@case(
    "Every mount is read-only but those of the sandbox's own making.", needs="mount-ns own-proc shared-kernel"
)
async def mounts_are_read_only(stand: Stand) -> None:
    async with stand.open() as trial:
        mounts = await trial.seen("report([line.split() for line in open('/proc/self/mountinfo')])")
        own = {"tmpfs", "proc", "sysfs", "devpts", "mqueue", "devtmpfs", "cgroup", "cgroup2", "overlay"}
        writable = [
            words[4]
            for words in mounts
            if "ro" not in words[5].split(",") and words[words.index("-") + 1] not in own
        ]
        # A device file is a mount of its own; what can be done with it is the device's matter.
        beyond = [place for place in writable if not place.startswith("/dev/")]
        assert not beyond, f"mounts of the host that can be written: {beyond}"
        assert not [words[4] for words in mounts if words[4] == "/" and "rw" in words[5].split(",")], (
            "/ can be written"
        )


@case(
    "A file of the host cannot be found by its path, or through any process's root or working directory.",
    needs="mount-ns",
)
async def host_files_are_not_there(stand: Stand) -> None:
    with tempfile.NamedTemporaryFile(suffix=".canary") as canary:
        paths = [
            canary.name,
            str(Path(__file__).resolve()),
            str(Path.cwd() / "pyproject.toml"),
            "/etc/shadow",
        ]
        code = f"""
found = []
for path in {paths!r}:
    for start in ('', '/proc/1/root', '/proc/self/root', '/proc/self/cwd/../..', '/proc/2/root', '/..'):
        try:
            if os.stat(start + path) and open(start + path, 'rb').read(1) is not None:
                found.append(start + path)
        except OSError:
            pass
report(found)
"""
        async with stand.open() as trial:
            found = await trial.seen(code)
            assert not found, f"files of the host seen from inside: {found}"


@case("The code holds no descriptor but its own wires: no directory, no file of the host.")
async def no_descriptor_is_inherited(stand: Stand) -> None:
    async with stand.open() as trial:
        kinds = await trial.seen("""
import stat
kinds = {}
for fd in range(1024):
    try:
        status = os.fstat(fd)
    except OSError:
        continue
    kinds[fd] = stat.filemode(status.st_mode)[0]
report(kinds)
""")
        odd = {fd: kind for fd, kind in kinds.items() if kind not in "cps"}
        assert not odd, f"descriptors that are no wire (d: directory, -: file): {odd}"
        sockets = [fd for fd, kind in kinds.items() if kind == "s"]
        assert len(sockets) <= 1, f"more than one socket: {sockets}"


@case("The interpreter, its library and the guest's own code cannot be changed.")
async def library_cannot_be_changed(stand: Stand) -> None:
    async with stand.open() as trial:
        results = await trial.seen("""
import sandbox.guest.calls
report({path: tried(lambda: open(path, 'r+').close()) for path in (os.__file__, json.__file__, sandbox.guest.calls.__file__)})
""")
        changed = {path: result for path, result in results.items() if result is None}
        assert not changed, f"opened for writing: {changed}"


CASES = cases_of(dict(globals()))

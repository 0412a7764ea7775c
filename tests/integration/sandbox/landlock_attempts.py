"""Unrestricted code under the degraded backend's own confinement, without its language policy: the system must hold alone.

Run as a program: makes a workspace and evidence, confines a child as the backend does, tries everything, prints JSON.
"""

import errno
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

#: What is tried, and the errno it must end with; 0: it works.
ATTEMPTS: dict[str, tuple[str, int]] = {
    "read a file of the host": ("open('/etc/passwd')", errno.EACCES),
    "list the root": ("os.listdir('/')", errno.EACCES),
    "read its own /proc": ("open('/proc/self/status')", errno.EACCES),
    "read another's environment": ("open(f'/proc/{os.getppid()}/environ')", errno.EACCES),
    "read its own memory": ("open('/proc/self/mem', 'rb')", errno.EACCES),
    "read the host's packages": ("os.listdir(packages)", errno.EACCES),
    "read another session's workspace": ("os.listdir(other)", errno.EACCES),
    "write beside the workspace": ("open(workspace + '-x', 'w')", errno.EACCES),
    "write to /tmp": ("open('/tmp/landlock-was-here', 'w')", errno.EACCES),
    "write to evidence": ("open(evidence, 'a')", errno.EACCES),
    "remove evidence": ("os.unlink(evidence)", errno.EACCES),
    "link evidence into the workspace": ("os.link(evidence, workspace + '/l')", errno.EXDEV),
    "move the workspace's file out": ("open('m', 'w').close() or os.rename('m', other + '/m')", errno.EACCES),
    "change the mode of evidence": ("os.chmod(evidence, 0o777)", errno.EPERM),
    "change its mode by descriptor": ("os.fchmod(os.open(evidence, 0), 0o777)", errno.EPERM),
    "change its times": ("os.utime(evidence, (1, 1))", errno.EPERM),
    "truncate it by path": ("os.truncate(evidence, 0)", errno.EPERM),
    "lock it": ("fcntl.flock(os.open(evidence, 0), fcntl.LOCK_EX)", errno.EPERM),
    "lease it": ("fcntl.fcntl(os.open(evidence, 0), 1024, 0)", errno.EPERM),
    "read attributes of a file": ("os.getxattr('/etc/passwd', 'user.x')", errno.EPERM),
    "own signals of a descriptor": ("fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())", errno.EPERM),
    "own signals by ioctl": ("fcntl.ioctl(3, 0x8901, struct.pack('i', os.getppid()))", errno.EPERM),
    "follow a link out": ("os.symlink('/etc/passwd', 's') or open('s')", errno.EACCES),
    "make a device": ("os.mknod('d', 0o60600, os.makedev(8, 0))", errno.EPERM),
    "exec": ("os.execv('/bin/true', ['true'])", errno.EPERM),
    "fork": ("os.fork()", errno.EAGAIN),
    "vfork": ("syscall(58)", errno.EAGAIN),
    "clone3": ("syscall(435, 0, 0)", errno.ENOSYS),
    "an internet socket": ("socket.socket(socket.AF_INET)", errno.EPERM),
    "a unix socket": ("socket.socket(socket.AF_UNIX)", errno.EPERM),
    "a vsock": ("socket.socket(40, socket.SOCK_STREAM)", errno.EPERM),
    "a netlink socket": ("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", errno.EPERM),
    "a pair of datagram sockets": ("socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)", errno.EPERM),
    "a pair of stream sockets": ("socket.socketpair()", 0),
    "signal its parent": ("os.kill(os.getppid(), 0)", errno.EPERM),
    "signal everybody": ("os.kill(-1, 0)", errno.EPERM),
    "signal its group": ("os.kill(0, 0)", errno.EPERM),
    "signal a thread of its parent": ("syscall(234, os.getppid(), os.getppid(), 0)", errno.EPERM),
    "signal by tkill": ("syscall(200, os.getppid(), 0)", errno.ENOSYS),
    "signal itself": ("os.kill(os.getpid(), 0)", 0),
    "trace its parent": ("syscall(101, 16, os.getppid(), 0, 0)", errno.EPERM),
    "limit its parent": ("resource.prlimit(os.getppid(), resource.RLIMIT_CPU)", errno.EPERM),
    "raise a limit": ("syscall(160, 1, 0)", errno.EPERM),
    "become root": ("os.setuid(0)", errno.EPERM),
    "a user namespace": ("libc_unshare(0x10000000)", errno.EPERM),
    "memory without a limit": ("os.memfd_create('m')", errno.EPERM),
    "shared memory without a limit": ("mmap.mmap(-1, 4096)", errno.EPERM),
    "private memory": ("mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)", 0),
    "a file beyond its size": ("open('big', 'wb').truncate(limit + 1)", errno.EFBIG),
    "a thread": ("threading.Thread(target=print, daemon=True).start()", 0),
    "read evidence": ("open(evidence).read()", 0),
    "map evidence": ("mmap.mmap(os.open(evidence, 0), 0, prot=mmap.PROT_READ)", 0),
    "write to the workspace": ("open('mine', 'w').write('x')", 0),
    "a directory of the workspace": ("os.makedirs('a/b') or os.rename('a/b', 'a/c')", 0),
    "more descriptors than allowed": ("[os.dup(0) for _ in range(100)]", errno.EMFILE),
}  # fmt: skip
LIMIT = 1 << 20


def _try(names: dict[str, object]) -> dict[str, str]:
    found = {}
    for name, (code, _) in ATTEMPTS.items():
        try:
            exec(code, names)
        except OSError as error:
            found[name] = errno.errorcode.get(error.errno or 0, repr(error))
        except Exception as error:  # noqa: BLE001
            found[name] = repr(error)
        else:
            found[name] = "works"
    return found


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[3]))
    import ctypes
    import fcntl
    import mmap
    import resource
    import socket
    import struct
    import sysconfig
    import threading

    from sandbox.backends.landlock import confine
    from sandbox.backends.landlock.plan import LandlockPlan
    from sandbox.backends.namespaces import kernel
    from sandbox.backends.namespaces.plan import Bind

    top = Path(tempfile.mkdtemp(prefix="landlock-"))
    top.chmod(0o711)
    workspace, other, evidence = top / "workspace", top / "other", top / "evidence"
    workspace.mkdir()
    other.mkdir(mode=0o777)
    other.chmod(0o777)
    evidence.write_text("shown")
    evidence.chmod(0o666)
    plan = LandlockPlan(
        name="attempts", evidence=(Bind(source=str(evidence), target="e"),), guest_paths=(), memory_bytes=1 << 29,
        processes=8, open_files=64, workspace_bytes=LIMIT, workspace_inodes=100, tmp_bytes=1, cpu_seconds=20,
        frame_bytes=1 << 20, frame_depth=8, calls_in_flight=1, workspace=str(workspace),
    )  # fmt: skip
    libc = ctypes.CDLL(None, use_errno=True)

    def syscall(*arguments: int) -> None:
        if libc.syscall(*map(ctypes.c_long, arguments)) < 0:
            raise OSError(ctypes.get_errno(), "syscall")

    names = {
        "workspace": str(workspace), "other": str(other), "evidence": str(evidence), "limit": LIMIT, "os": os,
        "packages": sysconfig.get_path("stdlib") + "/site-packages", "syscall": syscall, "fcntl": fcntl, "mmap": mmap,
        "resource": resource, "socket": socket, "struct": struct, "threading": threading,
        "libc_unshare": lambda flags: syscall(272, flags),
    }  # fmt: skip
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        uid = confine.own_uid(os.getpid())
        if uid is not None:
            os.chown(workspace, uid, uid)
        rules = confine.make_rules(plan, confine.library_paths())
        os.chdir(workspace)
        confine.limit_resources(plan, uid=uid)
        layers = confine.give_up(rules, uid=uid, zygote=os.getppid())
        confine.install_filter()
        os.write(write, json.dumps({"layers": layers, "uid": os.getuid(), **_try(names)}).encode())
        kernel.close_all_but(())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as report:
        print(report.read())
    os.waitpid(child, 0)
    shutil.rmtree(top)


if __name__ == "__main__":
    main()

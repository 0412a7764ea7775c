"""Cases: what the kernel must refuse, each call made as if it could succeed, each refusal seen as an errno."""

from sandbox.conformance.case import Stand, case, cases_of, told

#: How a kernel says no. Anything else means that the call was let in and failed for another reason.
_NO = frozenset({"EPERM", "EACCES", "ENOSYS", "EAFNOSUPPORT", "ESOCKTNOSUPPORT", "EPROTONOSUPPORT"})


async def _all_refused(stand: Stand, attempts: str, *, also: frozenset[str] = frozenset()) -> None:
    """Run a dict of named attempts; each must be answered with a no."""
    async with stand.open() as trial:
        results = await trial.seen(f"report({{name: tried(act) for name, act in {{{attempts}}}.items()}})")
        allowed = {name: result for name, result in results.items() if result not in _NO | also}
        assert results, "nothing was tried"
        assert not allowed, f"not refused: {allowed}"
        await trial.expect_alive()


@case("Namespaces and mounts cannot be made or changed.", needs="x86_64")
async def namespaces_and_mounts(stand: Stand) -> None:
    await _all_refused(
        stand,
        """
'mount tmpfs': lambda: call(165, b'tmpfs', b'/workspace', b'tmpfs', 0, b''),
'remount / writable': lambda: call(165, b'', b'/', None, 32 | 4096, None),
'bind /proc': lambda: call(165, b'/proc', b'/workspace', None, 4096, None),
'umount': lambda: call(166, b'/workspace', 2),
'pivot_root': lambda: call(155, b'.', b'.'),
'chroot': lambda: call(161, b'/workspace'),
'open_tree': lambda: call(428, -100, b'/', 1),
'move_mount': lambda: call(429, -100, b'/workspace', -100, b'/tmp', 0),
'fsopen': lambda: call(430, b'tmpfs', 0),
'fspick': lambda: call(433, -100, b'/', 0),
'mount_setattr': lambda: call(442, -100, b'/', 0, bytes(32), 32),
'unshare user': lambda: call(272, 0x10000000),
'unshare mount': lambda: call(272, 0x00020000),
'unshare net': lambda: call(272, 0x40000000),
'unshare pid': lambda: call(272, 0x20000000),
'setns': lambda: call(308, 1, 0),
'sethostname': lambda: call(170, b'x', 1),
'clone3': lambda: child(call(435, (ctypes.c_uint64 * 11)(0x10000000), 88)),
'clone new user': lambda: child(call(56, 0x10000011, 0, 0, 0, 0)),
'clone new pid': lambda: child(call(56, 0x20000011, 0, 0, 0, 0)),
""",
        also=frozenset({"EINVAL"}) if "seccomp" not in stand.claims else frozenset(),
    )


@case(
    "clone3, whose flags no filter can read, is unknown, so that libraries fall back to clone.",
    needs="seccomp x86_64",
)
async def clone3_is_unknown(stand: Stand) -> None:
    async with stand.open() as trial:
        result = await trial.seen("report(child(call(435, (ctypes.c_uint64 * 11)(), 88)))")
        assert result == "ENOSYS", f"clone3 answered {result}"


@case("Ids, capabilities, limits and priorities cannot be raised.", needs="x86_64")
async def privileges(stand: Stand) -> None:
    await _all_refused(
        stand,
        """
'setuid': lambda: os.setuid(0),
'setgid': lambda: os.setgid(0),
'setreuid': lambda: os.setreuid(0, 0),
'setresuid': lambda: os.setresuid(0, 0, 0),
'setgroups': lambda: os.setgroups([0]),
'capset': lambda: call(126, b'\\x22\\x05\\x08\\x20' + bytes(4), b'\\xff' * 24),
'raise a limit': lambda: call(160, 7, (ctypes.c_ulong * 2)(1 << 20, 1 << 20)),
'raise a limit by prlimit': lambda: call(302, 0, 7, (ctypes.c_ulong * 2)(1 << 20, 1 << 20), None),
'raise priority': lambda: call(141, 0, 0, -10),
'real time': lambda: call(144, 0, 1, ctypes.byref(ctypes.c_int(50))),
'chown': lambda: (open('/workspace/f', 'w').close(), os.chown('/workspace/f', 0, 0))[1],
'mknod of a disk': lambda: os.mknod('/workspace/disk', 0o60600, os.makedev(8, 0)),
'mknod of memory': lambda: os.mknod('/workspace/mem', 0o20600, os.makedev(1, 1)),
'settimeofday': lambda: call(164, (ctypes.c_long * 2)(1, 1), None),
'clock_settime': lambda: call(227, 0, (ctypes.c_long * 2)(1, 1)),
'reboot': lambda: call(169, 0xfee1dead, 672274793, 0, 0),
'swapon': lambda: call(167, b'/workspace/f', 0),
'acct': lambda: call(163, b'/workspace/f'),
'init_module': lambda: call(175, b'x' * 64, 64, b''),
'finit_module': lambda: call(313, 0, b'', 0),
'kexec_load': lambda: call(246, 0, 0, None, 0),
'kexec_file_load': lambda: call(320, 0, 0, 0, b'', 0),
'syslog': lambda: call(103, 2, bytes(64), 64),
'iopl': lambda: call(172, 3),
'ioperm': lambda: call(173, 0x70, 2, 1),
""",
    )


@case(
    "Calls with a record of kernel bugs, or that reach into other processes, are refused.",
    needs="seccomp x86_64",
)
async def dangerous_calls(stand: Stand) -> None:
    await _all_refused(
        stand,
        """
'ptrace': lambda: call(101, 0, 0, 0, 0),
'ptrace pid 1': lambda: call(101, 16, 1, 0, 0),
'process_vm_readv': lambda: call(310, os.getpid(), bytes(16), 1, bytes(16), 1, 0),
'process_vm_writev': lambda: call(311, os.getpid(), bytes(16), 1, bytes(16), 1, 0),
'process_madvise': lambda: call(440, 0, bytes(16), 1, 0, 0),
'kcmp': lambda: call(312, os.getpid(), os.getpid(), 0, 0, 1),
'pidfd_open': lambda: call(434, 1, 0),
'pidfd_getfd': lambda: call(438, 0, 0, 0),
'pidfd_send_signal': lambda: call(424, 0, 0, None, 0),
'bpf': lambda: call(321, 0, bytes(64), 64),
'perf_event_open': lambda: call(298, bytes(128), 0, -1, -1, 0),
'userfaultfd': lambda: call(323, 1),
'io_uring_setup': lambda: call(425, 1, bytes(120)),
'io_uring_enter': lambda: call(426, 0, 1, 0, 0, None, 0),
'keyctl': lambda: call(250, 0, -3, 0),
'add_key': lambda: call(248, b'user', b'x', b'y', 1, -3),
'request_key': lambda: call(249, b'user', b'x', None, -3),
'name_to_handle_at': lambda: call(303, -100, b'/', bytes(136), bytes(4), 0),
'open_by_handle_at': lambda: call(304, 3, bytes(136), 0),
'fanotify_init': lambda: call(300, 0, 0),
'quotactl': lambda: call(179, 0, None, 0, None),
'personality': lambda: call(135, 0x0040000),
'memfd_secret': lambda: call(447, 0),
'landlock_create_ruleset': lambda: call(444, None, 0, 1),
'shmget': lambda: call(29, 1, 4096, 0o1600),
'semget': lambda: call(64, 1, 1, 0o1600),
'msgget': lambda: call(68, 1, 0o1600),
'mq_open': lambda: call(240, b'x', 0o102, 0o600, None),
'vmsplice': lambda: call(278, 1, bytes(16), 0, 0),
'modify_ldt': lambda: call(154, 1, bytes(16), 16),
'remap_file_pages': lambda: call(216, 0, 0, 0, 0, 0),
'seccomp': lambda: call(317, 2, 0, None),
'prctl dumpable': lambda: call(157, 4, 1, 0, 0, 0),
'prctl ptracer': lambda: call(157, 0x59616d61, -1, 0, 0, 0),
'prctl subreaper': lambda: call(157, 36, 1, 0, 0, 0),
""",
    )


@case("No program can be run, from any place and by any call.", needs="seccomp x86_64")
async def execution(stand: Stand) -> None:
    await _all_refused(
        stand,
        """
'execve': lambda: os.execv('/proc/self/exe', ['x']),
'execve of the interpreter': lambda: os.execv(sys.executable or '/usr/bin/python3', ['x']),
'execve of a file of its own': lambda: (open('/workspace/x', 'w').write('#!/bin/sh'), os.chmod('/workspace/x', 0o700), os.execv('/workspace/x', ['x'])),
'execveat of a memfd': lambda: call(322, os.memfd_create('x'), b'', (ctypes.c_char_p * 2)(b'x', None), (ctypes.c_char_p * 1)(None), 0x1000),
'posix_spawn': lambda: os.posix_spawn('/bin/sh', ['sh'], {}),
""",
        also=frozenset({"EAGAIN"}),  # where there is no fork, posix_spawn gets no further
    )


@case(
    "A system call of another architecture kills the code, not the host.",
    needs="seccomp shared-kernel x86_64",
)
async def foreign_architecture(stand: Stand) -> None:
    async with stand.open() as trial:
        finished = await trial.raw("""
import mmap
page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex('b814000000cd80c3'))
report(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
""")
        assert (finished.outcome, finished.state_lost) == ("crashed", True), f"int 0x80 ran: {told(finished)}"


@case("System calls by the x32 numbers are no way around the filter.", needs="seccomp shared-kernel x86_64")
async def x32_numbers(stand: Stand) -> None:
    async with stand.open() as trial:
        finished = await trial.raw("report(call(0x40000000 + 39))")
        assert finished.state_lost or "ENOSYS" in finished.stdout, (
            f"getpid by its x32 number: {told(finished)}"
        )


@case("Files of the kernel that change the machine cannot be written.")
async def kernel_files(stand: Stand) -> None:
    await _all_refused(
        stand,
        """
path: (lambda path=path: open(path, 'r+b').close()) for path in (
    '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/self/oom_score_adj', '/proc/self/mem',
    '/proc/1/mem', '/proc/kcore', '/dev/mem', '/dev/kmsg', '/dev/sda', '/dev/kvm', '/sys/kernel/uevent_helper',
    '/sys/fs/cgroup/release_agent', '/sys/fs/cgroup/memory/release_agent', '/proc/self/uid_map',
    '/proc/self/attr/current', '/proc/bus/pci/00', '/dev/vhost-vsock', '/run/docker.sock')
""",
        also=frozenset({"ENOENT", "EROFS", "EISDIR", "ENXIO", "ENOTDIR"}),
    )


@case("Devices of the kernel cannot be opened.", needs="shared-kernel")
async def kernel_devices(stand: Stand) -> None:
    await _all_refused(
        stand,
        "path: (lambda path=path: open(path, 'r+b', 0).close())"
        " for path in ('/dev/fuse', '/dev/net/tun', '/dev/kvm', '/dev/vhost-net', '/dev/loop-control', '/dev/uinput')",
        also=frozenset({"ENOENT", "EROFS", "ENXIO"}),
    )


CASES = cases_of(dict(globals()))

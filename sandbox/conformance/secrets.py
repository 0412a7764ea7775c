"""Cases: nothing of the host's environment and memory can be read, and its files only as evidence."""

import os
import secrets
import tempfile
from pathlib import Path

from sandbox.conformance.case import Stand, case, cases_of
from sandbox.policy import Mount

#: In this process's heap and environment while a case runs; found inside, it would prove a leak.
_CANARY = "conformance-" + secrets.token_hex(16)
_HALVES = (_CANARY[:20], _CANARY[20:])

_SCAN = f"""
import gc
needle = {_HALVES[0]!r} + {_HALVES[1]!r}
found = []
for pid in ['self', *(p for p in (os.listdir('/proc') if os.path.isdir('/proc') else []) if p.isdigit())]:
    for name in ('environ', 'cmdline', 'auxv', 'stack', 'syscall', 'stat', 'mountinfo', 'cgroup', 'comm', 'limits'):
        try:
            if needle.encode() in open(f'/proc/{{pid}}/{{name}}', 'rb').read():
                found.append(f'/proc/{{pid}}/{{name}}')
        except OSError:
            pass
own = {{id(needle)}}
"""


@case("The environment of the code holds nothing of the host's.")
async def environment_is_empty(stand: Stand) -> None:
    os.environ["CONFORMANCE_CANARY"] = _CANARY
    try:
        async with stand.open() as trial:
            names, found = await trial.seen(_SCAN + "report([sorted(os.environ), found])")
            allowed = {"HOME", "LANG", "TMPDIR", "PATH", "HOSTNAME", "PYTHONHASHSEED", "LC_CTYPE"}
            assert set(names) <= allowed, f"in the environment: {sorted(set(names) - allowed)}"
            assert not found, f"the canary stands in {found}"
    finally:
        del os.environ["CONFORMANCE_CANARY"]


@case("The memory of the host's process is not in the code's own memory.", needs="shared-kernel")
async def memory_is_not_inherited(stand: Stand) -> None:
    held = [_CANARY + str(number) for number in range(1000)]
    async with stand.open() as trial:
        found = await trial.seen(
            _SCAN
            + """
found += [type(o).__name__ for o in gc.get_objects() for v in (o.values() if type(o) is dict else o if type(o) in (list, tuple) else ())
          if type(v) is str and needle in v and len(v) > len(needle)]
import re
def readable():
    "The code's own memory, where the kernel lets it be read by name; and the heap around an object in any case."
    try:
        with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:
            for line in maps:
                first, last = (int(x, 16) for x in line.split()[0].split('-'))
                if line.split()[1][0] == 'r' and 'vv' not in line and last - first < 64 << 20:
                    memory.seek(first)
                    yield memory.read(last - first)
    except OSError:
        page = id(needle) & ~0xfff
        yield ctypes.string_at(page, 4096)
pattern = re.compile(needle.encode() + rb'\\d')
found += ['memory' for piece in readable() if pattern.search(piece)]
report(found)
"""
        )
        assert held
        assert not found, f"the canary of the host's heap was found in {found}"


@case(
    "The memory of the sandbox's own first process, and of any other, cannot be opened.",
    needs="shared-kernel",
)
async def memory_of_others_is_closed(stand: Stand) -> None:
    async with stand.open() as trial:
        opened = await trial.seen("""
opened = []
for pid in {1, os.getppid()} - {os.getpid()}:
    for name in ('mem', 'environ', 'auxv', 'maps', 'root/etc/passwd', 'cwd/etc/passwd', 'fd/0', 'map_files/0-1'):
        path = f'/proc/{pid}/{name}'
        if isinstance(tried(lambda: open(path, 'rb').read(1)), bytes):
            opened.append(path)
report(opened)
""")
        assert not opened, f"of another process: {opened}"


@case("Evidence can be read at its place, and in no way changed.")
async def evidence_is_read_only(stand: Stand) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        file = Path(directory) / "log.txt"
        file.write_text("evidence", encoding="utf-8")
        file.chmod(0o644)
        before = file.stat()
        mounts = (Mount(source=directory, target="tree"), Mount(source=str(file), target="log.txt"))
        async with stand.open(evidence=mounts) as trial:
            place = (await trial.run("print(evidence['log.txt'].text)")).stdout
            assert "evidence" in place, f"the evidence cannot be read: {place!r}"
            results = await trial.seen("""
root = evidence._root
path = root + '/log.txt'
report({name: tried(act) for name, act in {
    'write': lambda: open(path, 'r+').write('x'),
    'append': lambda: open(path, 'a').write('x'),
    'truncate': lambda: os.truncate(path, 0),
    'open and truncate': lambda: os.open(path, os.O_TRUNC | os.O_RDWR),
    'chmod': lambda: os.chmod(path, 0o777),
    'unlink': lambda: os.unlink(path),
    'rename': lambda: os.rename(path, root + '/x'),
    'new file': lambda: open(root + '/tree/new', 'w'),
    'hard link': lambda: os.link(path, '/workspace/link'),
    'times': lambda: os.utime(path),
    'attributes': lambda: os.setxattr(path, 'user.x', b'y'),
    'by descriptor': lambda: os.open('/proc/self/fd/%d' % os.open(path, os.O_RDONLY), os.O_RDWR),
}.items()})
""")
            changed = {name: result for name, result in results.items() if not isinstance(result, str)}
            assert not changed, f"evidence was changed: {changed}"
        after = file.stat()
        assert file.read_text(encoding="utf-8") == "evidence", "the evidence is not what it was"
        assert (after.st_mtime_ns, after.st_mode, after.st_nlink) == (
            before.st_mtime_ns,
            before.st_mode,
            before.st_nlink,
        )


CASES = cases_of(dict(globals()))

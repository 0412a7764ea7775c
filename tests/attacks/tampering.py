"""Attacks on evidence, on other sessions, on artifacts, and on whoever reads what comes out."""

from tests.attacks.attack import parse

EVIDENCE = parse(
    "tamper with evidence",
    r"""
## by writing !tampered
open(E, 'r+').write('XX')
## by appending !tampered
open(E, 'a').write('XX')
## by truncating at opening !tampered
os.open(E, os.O_TRUNC | os.O_WRONLY)
## by truncate !tampered
os.truncate(E, 1)
## by its descriptor, opened again !tampered
fd = os.open(f"/proc/self/fd/{os.open(E, 0)}", os.O_RDWR); os.ftruncate(fd, 1)
## by a shared map !tampered
import mmap
with open(E, 'r+b') as f: mmap.mmap(f.fileno(), 0)[0:2] = b'XX'
## by its mode
os.chmod(E, 0o600)
## by its times
os.utime(E, (1, 1))
## by removal
os.unlink(os.path.realpath(E)); os.unlink(E)
## by renaming
os.rename(os.path.realpath(E), W + '/taken')
## by a hard link
os.link(os.path.realpath(E), W + '/second')
## by mounting over it
print(call(165, b'tmpfs', os.path.dirname(E).encode(), b'tmpfs', 0, None), call(165, None, os.path.dirname(E).encode(), None, 4096 | 32, None))
## by an attribute
os.setxattr(E, 'user.x', b'y')
## by fallocate and copy_file_range !tampered
fd = os.open(E, os.O_RDWR); os.posix_fallocate(fd, 0, 100)
## by a lease on it
import fcntl
print(tried(lambda: fcntl.fcntl(os.open(E, 0), 1024, 0)), tried(lambda: fcntl.flock(os.open(E, 0), 2 | 4)))
""",
)

OTHERS = parse(
    "influence another session",
    r"""
## by the shared temporary directory !influenced
open('/tmp/poison-' + MARK, 'w').write('x')
## by shared memory !influenced
open('/dev/shm/poison-' + MARK, 'w').write('x')
## by the interpreter's library
open(os.__file__, 'a').write('\npoison = 1\n')
## by the guest's own code
import sandbox.guest.calls as c
tried(lambda: open(c.__file__, 'a').write('\npoison = 1\n')); c.poison = 1
## by bytecode
import importlib.util
p = importlib.util.cache_from_source(json.__file__); tried(lambda: open(p, 'r+b').write(b'x'))
## by builtins and modules
import builtins
builtins.poison = sys.poison = 1; os.environ['poison'] = '1'
## by signals to everybody
tried(lambda: os.kill(-1, 0)); [tried(lambda: os.kill(p, 9)) for p in range(2, 40) if p != os.getpid() and os.getpid() < 64]
## by System V objects
print([call(n, 4711, 4096, 0o1666) for n in (29, 64, 68)])
## by keys
print(call(248, b'user', b'poison', b'x', 1, -4), call(250, 1, b'poison'))
## by a message queue
print(call(240, b'poison', 0o102, 0o666, None))
## by locks on the library
import fcntl
print(tried(lambda: fcntl.flock(os.open(os.__file__, 0), fcntl.LOCK_EX | fcntl.LOCK_NB)))
## by a module in the workspace
open(W + '/json.py', 'w').write('poison = 1'); open(W + '/sitecustomize.py', 'w').write('poison = 1')
## by the control socket of the zygote
for fd in range(3, 40): print(tried(lambda: socket.socket(fileno=os.dup(fd)).send(b'spawn')) if fd != link.fileno() and fd > 8 else '')
""",
)

ARTIFACTS = parse(
    "hostile artifacts",
    r"""
## links out of the workspace
os.symlink(CANARY, 'a'); os.symlink('/', 'b'); os.symlink('/proc/self/environ', 'c'); os.symlink('..', 'd')
## a named pipe
os.mkfifo('pipe')
## a thousand levels
for _ in range(250): os.mkdir('d'); os.chdir('d')
## names that are no text
open(b'\xff\xfe\n\x1b[2J', 'wb').write(b'x'); open('-rf', 'w'); open('x\ny', 'w')
## a file without end
f = open('big', 'wb'); tried(lambda: f.truncate(20 << 20)); f.close()
## directories that cannot be entered
os.mkdir('closed', 0); open('unreadable', 'w').close(); os.chmod('unreadable', 0)
## a tree that moves while it is read
import threading
def move():
    for _ in range(3000):
        tried(lambda: os.rename('t', 'u')); tried(lambda: os.symlink(os.path.dirname(CANARY), 't')); tried(lambda: os.unlink('t')); tried(lambda: os.rename('u', 't'))
os.mkdir('t'); open('t/canary.txt', 'w').write('mine'); threading.Thread(target=move, daemon=True).start(); time.sleep(0.05)
## sockets and sparse holes
tried(lambda: socket.socket(socket.AF_UNIX).bind('s')); f = open('hole', 'wb'); f.seek(10 << 20); f.write(b'x'); f.close()
""",
)

ESCAPES = parse(
    "show what it likes",
    r"""
## on standard output
print('\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\x7f\x85')
## raw on the error stream
os.write(2, b'\x1b[8m\xc2\x9b\x00\x0e')
## split over two writes
os.write(1, b'\xc2'); time.sleep(0.05); os.write(1, b'\x9b'); os.write(1, b'\x1b')
## in an error
raise type('E\x1b[2J', (Exception,), {})('\x1b[1A\x07')
## in a traceback
exec(compile("raise ValueError('\x1b[2J')", '<cell \x1b[2J>', 'exec'))
## in the name of a call
forge(asked(1, 'tool\x1b[2J')); time.sleep(0.2)
## in a forged error
forge(done(outcome='error', error={'type': '\x1b', 'message': '\x9b', 'line': 1, 'traceback': '\x07'}))
## in the kind of a frame
forge({'t': '\x1b[2J'}); time.sleep(0.2)
## in broken JSON
forge(b'{"\x1b[2J'); time.sleep(0.2)
""",
)

ATTACKS = [*EVIDENCE, *OTHERS, *ARTIFACTS, *ESCAPES]

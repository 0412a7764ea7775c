"""Attacks on limits, and on the worker itself."""

from dataclasses import replace

from tests.attacks.attack import parse

OVER = "def over(n, most):\n    print('over the limit', n) if n > most else print('within', n)\n"

LIMITS = [
    replace(attack, code=OVER + attack.code)
    for attack in parse(
        "exceed a limit",
        r"""
## memory by one process !exceeded
x = bytearray(260 << 20); over(len(x) >> 20, 240)
## memory by many processes !exceeded
held = []
for _ in range(6):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        x = b'x' * (50 << 20); os.write(w, b'1'); time.sleep(3); os._exit(0)
    os.close(w); os.read(r, 1); held.append(pid)
over(50 * len([p for p in held if os.waitpid(p, os.WNOHANG) == (0, 0)]), 250)
## memory by shared mappings !exceeded
import mmap
held = []
for _ in range(9):
    held.append(mmap.mmap(-1, 32 << 20)); [held[-1].write(b'x' * (1 << 20)) for _ in range(32)]
over(32 * len(held), 240)
## memory by anonymous files !exceeded
held = []
for _ in range(14):
    held.append(os.memfd_create('x')); [os.write(held[-1], b'x' * (1 << 20)) for _ in range(20)]
over(20 * len(held), 240)
## memory by mapped zeros
import mmap
fd = os.open('/dev/zero', 0); m = mmap.mmap(fd, 260 << 20, mmap.MAP_SHARED, mmap.PROT_READ)
sum(m[i] for i in range(0, 260 << 20, 4096))
over(sum(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('RssShmem')) >> 10, 240)
## memory that grows downwards !exceeded
import mmap
m = mmap.mmap(-1, 260 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100)
for i in range(0, 260 << 20, 4096): m[i] = 1
over(len(m) >> 20, 240)
## memory by pipes !exceeded
held = [os.pipe() for _ in range(60)]; over(2 * len(held), 64)
## memory by sockets !exceeded
held = []
for _ in range(60): held.append(socket.socketpair())
over(2 * len(held), 64)
## disk !exceeded
n = 0
for i in range(12):
    with open(f'{W}/{i}', 'wb', 0) as f:
        for _ in range(4): n += f.write(b'x' * (1 << 20))
over(n >> 20, 24)
## a sparse file !exceeded
open(W + '/sparse', 'wb').truncate(1 << 36); over(os.path.getsize(W + '/sparse') >> 20, 24)
## files without number !exceeded
for n in range(600): open(f'{W}/{n}', 'w').close()
over(n, 300)
## directories without end !exceeded
for n in range(600): os.mkdir('d'); os.chdir('d')
over(n, 300)
## descriptors !exceeded
held = [os.open('/dev/null', 0) for _ in range(200)]; over(len(held), 64)
## threads !exceeded
import threading
for n in range(60): threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
over(n, 40)
## processes !exceeded
n = 0
while n < 60:
    if os.fork() == 0: time.sleep(2); os._exit(0)
    n += 1
over(n, 40)
## its own limits !exceeded
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE); resource.setrlimit(resource.RLIMIT_NOFILE, (max(32, hard - 1), hard)); over(2, 1)
## its priority !exceeded
os.nice(5); os.setpriority(os.PRIO_PROCESS, 0, 10); over(2, 1)
## the processor it runs on !exceeded
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); over(2, 1)
## its place in the queue for the killer
open('/proc/self/oom_score_adj', 'w').write('-999'); over(2, 1)
## output, raw and by streams
for _ in range(400): os.write(1, b'x' * 65536); os.write(2, b'\xff' * 65536)
## calls in flight
for i in range(40): forge(asked(i, 'predict', payload={'keep': 1}))
time.sleep(0.5)
## the deadline, by an interrupt that is ignored
import signal; signal.signal(2, signal.SIG_IGN); sum(range(10**12))
## the deadline, by a mask in every thread
import signal, threading
def spin():
    while True: pass
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); [threading.Thread(target=spin, daemon=True).start() for _ in '12']; spin()
## the deadline, by catching everything
while True:
    try:
        while True: pass
    except BaseException: pass
## the deadline, by stopping itself
os.kill(os.getpid(), 19)
## the deadline, by a finaliser
class F:
    def __del__(self):
        while True: pass
x = F(); del x
""",
        deadline=3.0,
    )
]

DOWN = parse(
    "take the worker down",
    r"""
## a frame of four gigabytes
link.sendall(struct.pack('>I', 2**32 - 1)); time.sleep(0.3)
## a frame of exactly the limit, never sent
link.sendall(struct.pack('>I', 1 << 20)); time.sleep(9)
## deep lists
forge(b'[' * 500_000); time.sleep(0.3)
## deep objects
forge(b'{"a":' * 150_000); time.sleep(0.3)
## deep within a call
forge(b'{"t":"call","cell":1,"id":1,"name":"predict","payload":{"x":' + b'[' * 63 + b']' * 63 + b'}}'); time.sleep(0.3)
## an integer of 100000 digits
forge(b'{"t": ' + b'9' * 100_000 + b'}'); time.sleep(0.3)
## integers of 4300 digits by the hundred
forge(b'{"t":[' + b','.join([b'9' * 4300] * 200) + b']}'); time.sleep(0.3)
## a number of a megabyte
forge(b'{"t": 1.' + b'3' * 1_000_000 + b'}'); time.sleep(0.3)
## a million commas in text
forge(asked(1, 'predict', payload={'x': ',' * 1_000_000})); time.sleep(0.3)
## quotes that do not end
forge(b'{"x":' + b'",' * 500_000); time.sleep(0.3)
## a lone surrogate
forge(b'{"t": "\\ud800"}'); time.sleep(0.3)
## a lone surrogate in an error
raise ValueError('\ud800 \udfff')
## not a number
forge(b'{"t": NaN}'); time.sleep(0.3)
## infinity
forge(b'{"t": -Infinity, "x": 1e999}'); time.sleep(0.3)
## random bytes
link.sendall(bytes((i * 7919) % 256 for i in range(100_000))); time.sleep(0.3)
## one byte at a time
link.sendall(struct.pack('>I', 5000))
while True: link.sendall(b' '); time.sleep(0.01)
## an end in the middle of a frame
link.sendall(struct.pack('>I', 5000) + b'{"t"'); os._exit(0)
## half of a header
link.sendall(b'\0\0'); os.kill(os.getpid(), 9)
## a channel that is shut
link.shutdown(socket.SHUT_RDWR); time.sleep(2)
## all descriptors closed
os.closerange(0, 64); time.sleep(1)
## all descriptors pointed at the output
for fd in range(3, 16): os.dup2(1, fd)
time.sleep(1)
## a channel that is never read
from sandbox.guest import runner
import threading
stuck = threading.Lock(); stuck.acquire()
runner.Channel.receive = lambda self: stuck.acquire()
forge(asked(0, 'predict')); time.sleep(0.2)
for i in range(1, 3000): forge(asked(i, 'predict')); time.sleep(0.0002)
## a channel that blocks no more
link.setblocking(False); time.sleep(0.3)
## a flood of calls that nobody declared
for i in range(5000): forge(asked(i % 8, 'nothing')); time.sleep(0)
## calls with a million items
for i in range(12): forge(b'{"t":"call","cell":1,"id":%d,"name":"predict","payload":{"x":[' % i + b','.join([b'0'] * 500_000) + b']}}')
time.sleep(0.5)
## a flood of calls
for i in range(5000): forge(asked(i % 8, 'predict')); time.sleep(0)
## a flood of output while it is killed
import signal; signal.signal(2, signal.SIG_IGN)
while True: os.write(1, b'x' * 65536)
## output one byte at a time
for _ in range(20000): os.write(1, b'\x00'); os.write(2, b'\xff')
## a result without end
class R:
    def __repr__(self): return 'x' * (30 << 20)
R()
## an error with a hostile class
class M(type):
    @property
    def __name__(cls): raise SystemExit
class E(Exception, metaclass=M):
    def __str__(self): os._exit(7)
raise E
## an error with a chain without end
e = ValueError(0)
for i in range(100_000):
    n = ValueError(i); n.__cause__ = e; e = n
raise e
## an error that is its own cause
e = ValueError(); e.__context__ = e; raise e
## a group of errors without end
e = ValueError()
for _ in range(2000): e = ExceptionGroup('x', [e])
raise e
## recursion in C
x = []
for _ in range(10**6): x = [x]
repr(x)
## a name that kills the compiler
exec('(' * 90000)
## a frozen interpreter
sys.setswitchinterval(10**6)
import threading
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start(); spin()
## an alarm for the interpreter
import signal; signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001); time.sleep(1)
## closing by force from within
libc.raise_(6) if hasattr(libc, 'raise_') else os.abort()
""",
    deadline=2.0,
)

ATTACKS = [*LIMITS, *DOWN]

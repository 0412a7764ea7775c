"""Attacks that reach out: to a listener, or past their own end."""

from tests.attacks.attack import parse

LISTENERS = parse(
    "reach a listener",
    r"""
## TCP !reached
socket.create_connection(('127.0.0.1', PORT['tcp']), 2)
## TCP version 6
socket.create_connection(('::1', PORT['tcp6']), 2)
## UDP !reached
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT['udp']))
## every address of the machine !reached
for a in ('127.0.0.1', '0.0.0.0', 'localhost', '127.1.2.3'): print(tried(lambda: socket.create_connection((a, PORT['tcp']), 0.5)))
## an abstract socket !reached
socket.socket(socket.AF_UNIX).connect('\0' + MARK)
## an abstract datagram socket !reached
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '\0' + MARK + 'd')
## a socket by its path !reached
socket.socket(socket.AF_UNIX).connect(SOCKETS + '/s')
## a datagram socket by its path !reached
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', SOCKETS + '/d')
## a datagram by sendmsg !reached
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, '\0' + MARK + 'd')
## a socket in evidence !reached
socket.socket(socket.AF_UNIX).connect(os.path.dirname(E) + '/shared/s')
## a datagram socket in evidence !reached
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', os.path.dirname(E) + '/shared/d')
## a datagram socket in evidence, from a pair !reached
socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', os.path.dirname(E) + '/shared/d')
## a datagram socket in evidence, by a raw system call !reached
fd = call(41, 1, 3, 0)
path = (os.path.dirname(E) + '/shared/d').encode()
call(44, fd, b'x', 1, 0, b'\x01\x00' + path + b'\0', 3 + len(path))
## by asyncio !reached
import asyncio
async def go(): await asyncio.wait_for(asyncio.open_connection('127.0.0.1', PORT['tcp']), 2)
await go()
## by urllib
import urllib.request
print(tried(lambda: urllib.request.urlopen(f"http://127.0.0.1:{PORT['tcp']}/", timeout=1)))
## by http.client !reached
import http.client
http.client.HTTPConnection('127.0.0.1', PORT['tcp'], timeout=1).request('GET', '/')
## by a raw system call !reached
fd = call(41, 2, 1, 0)
call(42, fd, b'\x02\x00' + PORT['tcp'].to_bytes(2, 'big') + bytes([127, 0, 0, 1]) + bytes(8), 16)
## by a forked child !reached
if os.fork() == 0:
    tried(lambda: socket.create_connection(('127.0.0.1', PORT['tcp']), 1)); os._exit(0)
os.wait()
## by a raw socket
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); s.sendto(b'x' * 20, ('127.0.0.1', 0))
## by netlink
s = socket.socket(16, 3, 0); s.bind((0, 0)); print(s.getsockname())
## by vsock
s = socket.socket(40, 1); s.settimeout(1); s.connect((2, 1024))
## a name of the network
print(socket.getaddrinfo('example.org', 80))
## the fetch of the host, with the network off
from sandbox.guest.calls import host_call
for n in ('fetch', 'http', 'network'): print(tried(lambda: host_call(n, {'url': f"http://127.0.0.1:{PORT['tcp']}/", 'method': 'GET', 'headers': {}, 'body': ''})))
## on an inherited descriptor
for fd in range(3, 32): print(call(42, fd, b'\x01\x00\x00' + MARK.encode(), 3 + len(MARK)))
## the engine's socket
for p in ('/var/run/docker.sock', '/run/containerd/containerd.sock', '/run/dbus/system_bus_socket'): print(tried(lambda: socket.socket(socket.AF_UNIX).connect(p)))
""",
)

NAMED = "libc.prctl(15, MARK.encode(), 0, 0, 0)\n"

PROCESSES = parse(
    "leave a process",
    r"""
## a child !left
if os.fork() == 0:
    libc.prctl(15, MARK.encode(), 0, 0, 0); time.sleep(6); os._exit(0)
time.sleep(0.1)
## a grandchild in a session of its own !left
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        libc.prctl(15, MARK.encode(), 0, 0, 0); time.sleep(6)
    os._exit(0)
time.sleep(0.1)
## a child that is stopped !left
if os.fork() == 0:
    libc.prctl(15, MARK.encode(), 0, 0, 0); os.kill(os.getpid(), 19); time.sleep(6); os._exit(0)
time.sleep(0.1)
## a child that ignores every signal !left
if os.fork() == 0:
    import signal
    libc.prctl(15, MARK.encode(), 0, 0, 0)
    for s in signal.valid_signals(): tried(lambda: signal.signal(s, signal.SIG_IGN))
    time.sleep(6); os._exit(0)
time.sleep(0.1)
## a child of its parent, by clone
r = call(56, 0x8000 | 17, 0, 0, 0, 0)
if r == 0:
    libc.prctl(15, MARK.encode(), 0, 0, 0); time.sleep(2); os._exit(0)
time.sleep(0.1)
## a child in a pid namespace of its own
r = call(56, 0x30000000 | 17, 0, 0, 0, 0)
if r == 0:
    libc.prctl(15, MARK.encode(), 0, 0, 0); time.sleep(2); os._exit(0)
time.sleep(0.1)
## a child by vfork
r = call(58)
if r == 0: libc._exit(0)
## many children, dying as they are killed !left
for _ in range(10):
    if tried(os.fork) == 0:
        libc.prctl(15, MARK.encode(), 0, 0, 0); os.setpgid(0, 0); time.sleep(6); os._exit(0)
time.sleep(0.2)
## a thread that outlives its cell
import threading
def stay():
    libc.prctl(15, MARK.encode(), 0, 0, 0); time.sleep(6)
threading.Thread(target=stay, daemon=True).start()
## a program in the background !left
import subprocess
subprocess.Popen([f'/bin/sh', '-c', f'printf {MARK} > /proc/$$/comm; sleep 6; true'], start_new_session=True); time.sleep(0.3)
## a process of multiprocessing !left
import multiprocessing
def stay():
    libc.prctl(15, MARK.encode(), 0, 0, 0); time.sleep(6)
multiprocessing.get_context('fork').Process(target=stay, daemon=False).start(); time.sleep(0.2)
## killing pid 1 and everything else but itself
for s in (19, 15, 9): print(tried(lambda: os.kill(1, s))) if os.getpid() < 64 else None
## a child while the cell is killed at its deadline !left
if os.fork() == 0:
    os.setsid(); libc.prctl(15, MARK.encode(), 0, 0, 0); time.sleep(8); os._exit(0)
import signal; signal.signal(2, signal.SIG_IGN)
while True: pass
""",
    deadline=1.0,
)

ATTACKS = [*LISTENERS, *PROCESSES]

"""Which system calls a cell may make, by architecture: names and numbers only."""

# What CPython needs to analyse data: files, memory, threads, forked children, pipes, clocks. Not flock: a lock on a file
# that sessions share is a word between them, and one that the host may have to wait for.
_X86_64_ALLOWED = """
read 0 write 1 open 2 close 3 stat 4 fstat 5 lstat 6 poll 7 lseek 8 munmap 11 brk 12
rt_sigaction 13 rt_sigprocmask 14 rt_sigreturn 15 pread64 17 pwrite64 18 readv 19 writev 20 access 21 pipe 22
select 23 sched_yield 24 mremap 25 msync 26 mincore 27 madvise 28 dup 32 dup2 33 pause 34 nanosleep 35 getitimer 36
alarm 37 setitimer 38 getpid 39 sendfile 40 shutdown 48 getsockname 51
getpeername 52 fork 57 vfork 58 exit 60 wait4 61 kill 62 uname 63
fsync 74 fdatasync 75 truncate 76 ftruncate 77 getdents 78 getcwd 79 chdir 80 fchdir 81 rename 82 mkdir 83 rmdir 84
creat 85 link 86 unlink 87 symlink 88 readlink 89 chmod 90 fchmod 91 umask 95 gettimeofday 96 getrlimit 97
getrusage 98 sysinfo 99 times 100 getuid 102 getgid 104 geteuid 107 getegid 108 setpgid 109 getppid 110 getpgrp 111
setsid 112 getgroups 115 getresuid 118 getresgid 120 getpgid 121 getsid 124 rt_sigpending 127 rt_sigtimedwait 128
rt_sigsuspend 130 sigaltstack 131 utime 132 statfs 137 fstatfs 138 getpriority 140 sched_getparam 143
sched_getscheduler 145 sched_get_priority_max 146 sched_get_priority_min 147 mlock 149 munlock 150 arch_prctl 158
gettid 186 getxattr 191 lgetxattr 192 fgetxattr 193 listxattr 194 llistxattr 195 flistxattr 196 time 201 futex 202 sched_getaffinity 204 getdents64 217 set_tid_address 218 restart_syscall 219
fadvise64 221 clock_gettime 228 clock_getres 229 clock_nanosleep 230 exit_group 231 epoll_wait 232 epoll_ctl 233
tgkill 234 utimes 235 waitid 247 openat 257 mkdirat 258 newfstatat 262 unlinkat 263 renameat 264 linkat 265
symlinkat 266 readlinkat 267 fchmodat 268 faccessat 269 pselect6 270 ppoll 271 set_robust_list 273
get_robust_list 274 splice 275 utimensat 280 epoll_pwait 281 eventfd 284 fallocate 285 eventfd2 290 epoll_create1 291
dup3 292 pipe2 293 preadv 295 pwritev 296 getcpu 309 getrandom 318 membarrier 324
copy_file_range 326 statx 332 rseq 334 close_range 436 faccessat2 439
"""

# Refused by name with EPERM, so that the code sees a PermissionError and the trace can say what was tried.
_X86_64_REFUSED = """
shmget 29 connect 42 accept 43 bind 49 listen 50 execve 59 semget 64 msgget 68 chown 92 fchown 93 lchown 94
ptrace 101 syslog 103 setuid 105 setgid 106 setreuid 113 setregid 114 setgroups 116 setresuid 117 setresgid 119
setfsuid 122 setfsgid 123 capset 126 mknod 133 personality 135 setpriority 141 sched_setparam 142
sched_setscheduler 144 pivot_root 155 adjtimex 159 setrlimit 160 chroot 161 acct 163 settimeofday 164 mount 165
umount2 166 swapon 167 swapoff 168 reboot 169 sethostname 170 setdomainname 171 init_module 175 delete_module 176
quotactl 179 sched_setaffinity 203 clock_settime 227 mq_open 240 kexec_load 246 add_key 248 request_key 249 keyctl 250
ioprio_set 251 inotify_init 253 mknodat 259 fchownat 260 unshare 272 accept4 288 fanotify_init 300 perf_event_open 298
name_to_handle_at 303 open_by_handle_at 304 clock_adjtime 305 setns 308 process_vm_readv 310 process_vm_writev 311
kcmp 312 finit_module 313 sched_setattr 314 kexec_file_load 320 bpf 321 execveat 322 userfaultfd 323
pidfd_send_signal 424 io_uring_setup 425 io_uring_enter 426 io_uring_register 427 open_tree 428 move_mount 429
fsopen 430 fsconfig 431 fsmount 432 fspick 433 pidfd_open 434 pidfd_getfd 438 process_madvise 440 mount_setattr 442
landlock_create_ruleset 444 landlock_add_rule 445 landlock_restrict_self 446 memfd_secret 447
"""

# Allowed or refused by their arguments; the filter holds a rule for each.
_X86_64_EXAMINED = """
mmap 9 ioctl 16 socket 41 sendto 44 recvfrom 45 sendmsg 46 recvmsg 47 socketpair 53 setsockopt 54 getsockopt 55 clone 56
fcntl 72 prctl 157 prlimit64 302 memfd_create 319 mprotect 10 renameat2 316
"""


def _table(text: str) -> dict[str, int]:
    words = text.split()
    return {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}


AUDIT_ARCH = {"x86_64": 0xC000003E}
ALLOWED = {"x86_64": _table(_X86_64_ALLOWED)}
REFUSED = {"x86_64": _table(_X86_64_REFUSED)}
EXAMINED = {"x86_64": _table(_X86_64_EXAMINED)}

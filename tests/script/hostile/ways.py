"""A script that tries to leave its place in each way there is, all of them aimed at what the test has put there."""

import ctypes
import errno
import fcntl
import json
import multiprocessing
import os
import posix
import pty
import resource
import socket
import struct
import subprocess
import sys
from multiprocessing import resource_tracker, shared_memory

TARGETS = json.loads(sys.argv[1])
TCP, UDP, FILES, VICTIM = TARGETS["tcp"], TARGETS["udp"], TARGETS["files"], TARGETS["victim"]
C = ctypes.CDLL(None, use_errno=True)
ADDRESS = struct.pack("!2sH4s8x", struct.pack("=H", socket.AF_INET), TCP, socket.inet_aton("127.0.0.1"))


def program(word, *kind):
    return [sys.executable, "-S", TARGETS["reach"], str(UDP if kind else TCP), word, *kind]


def c(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def file(name):
    return f"{FILES}/{name.replace('/', '-')}"


def by_ctypes():
    handle = c(C.socket(socket.AF_INET, socket.SOCK_STREAM, 0))
    c(C.connect(handle, ADDRESS, len(ADDRESS)))
    c(C.send(handle, b"ctypes", 6, 0))


def by_ctypes_udp():
    handle = c(C.socket(socket.AF_INET, socket.SOCK_DGRAM, 0))
    address = struct.pack("!2sH4s8x", struct.pack("=H", socket.AF_INET), UDP, socket.inet_aton("127.0.0.1"))
    c(C.sendto(handle, b"ctypes UDP", 10, 0, address, len(address)))


def by_fast_open():
    handle = c(C.socket(socket.AF_INET, socket.SOCK_STREAM, 0))
    c(C.sendto(handle, b"fast open", 9, 0x20000000, ADDRESS, len(ADDRESS)))


def by_fork_and_exec():
    if (child := os.fork()) == 0:
        os.execv(sys.executable, program("fork and exec"))
    os.waitpid(child, 0)


def by_posix_spawn():
    os.waitpid(os.posix_spawn(sys.executable, program("posix_spawn"), os.environ), 0)


def by_multiprocessing():
    process = multiprocessing.get_context("spawn").Process(
        target=subprocess.call, args=(program("spawn of multiprocessing"),)
    )
    process.start()
    process.join()


def by_unix_socket():
    handle = c(C.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0))
    address = struct.pack("=H", socket.AF_UNIX) + TARGETS["unix"].encode() + b"\0"
    c(C.connect(handle, address, len(address)))
    c(C.send(handle, b"unix socket", 11, 0))


def by_abstract_socket():
    handle = c(C.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0))
    address = struct.pack("=H", socket.AF_UNIX) + b"\0" + TARGETS["abstract"].encode()
    c(C.connect(handle, address, len(address)))
    c(C.send(handle, b"abstract socket", 15, 0))


def by_link():
    link = os.path.join(os.environ["TMPDIR"], "link")
    posix.symlink(file("through a link of its own"), link)
    open(link, "w").close()


def change_flags():
    handle = os.open(file("ioctl"), os.O_RDONLY)
    fcntl.ioctl(handle, 0x40086602, struct.pack("l", 0x40))  # FS_IOC_SETFLAGS, FS_NODUMP_FL


def share_memory():
    segment = shared_memory.SharedMemory(TARGETS["name"] + "-python", create=True, size=64)
    resource_tracker.unregister(segment._name, "shared_memory")


def priority_of(process):
    c(C.setpriority(0, process, 19))


def limit(process):
    resource.prlimit(process, resource.RLIMIT_NOFILE, (64, 64))


def affinity(process):
    os.sched_setaffinity(process, {min(os.sched_getaffinity(0))})


WAYS = {
    "subprocess": lambda: subprocess.run(program("subprocess"), stderr=subprocess.DEVNULL),
    "os.system": lambda: os.system(" ".join(program("os.system"))),
    "ctypes": by_ctypes,
    "fast open": by_fast_open,
    "posix_spawn": by_posix_spawn,
    "os.spawnv": lambda: os.spawnv(os.P_WAIT, sys.executable, program("os.spawnv")),
    "pty.spawn": lambda: pty.spawn(program("pty.spawn")),
    "fork and exec": by_fork_and_exec,
    "system of C": lambda: C.system(" ".join(f"'{word}'" for word in program("system of C")).encode()),
    "spawn of multiprocessing": by_multiprocessing,
    "UDP of a program": lambda: subprocess.run(program("UDP of a program", "udp"), stderr=subprocess.DEVNULL),
    "ctypes UDP": by_ctypes_udp,
    "unix socket": by_unix_socket,
    "abstract socket": by_abstract_socket,
    "open of C": lambda: c(C.open(file("open of C").encode(), os.O_WRONLY | os.O_TRUNC)),
    "truncate of C": lambda: c(C.truncate(file("truncate of C").encode(), ctypes.c_long(0))),
    "unlink of C": lambda: c(C.unlink(file("unlink of C").encode())),
    "a shell": lambda: subprocess.run(["sh", "-c", f"echo > '{file('a shell')}'"], stderr=subprocess.DEVNULL),
    "/proc/self/root": lambda: open("/proc/self/root" + file("/proc/self/root"), "w").close(),
    "through a link of its own": by_link,
    "chmod": lambda: c(C.chmod(file("chmod").encode(), 0o777)),
    "chown": lambda: c(C.chown(file("chown").encode(), 1, 1)),
    "chmod of Python": lambda: c(C.chmod(b"/proc/self/exe", os.stat("/proc/self/exe").st_mode & 0o7777)),
    "a device": lambda: os.close(c(C.open(file("a device").encode(), os.O_WRONLY))),
    "utimes": lambda: c(C.utimes(file("utimes").encode(), None)),
    "setxattr": lambda: c(C.setxattr(file("setxattr").encode(), b"user.x", b"x", 1, 0)),
    "ioctl": change_flags,
    "shm_open of C": lambda: c(C.shm_open(f"/{TARGETS['name']}-c".encode(), os.O_CREAT | os.O_RDWR, 0o600)),
    "shared_memory": share_memory,
    "sem_open": lambda: ctypes.CDLL(None).sem_open(f"/{TARGETS['name']}".encode(), os.O_CREAT, 0o600, 1),
    "shmget": lambda: c(C.shmget(TARGETS["key"], 64, 0o1600)),
    "mq_open": lambda: c(C.mq_open(f"/{TARGETS['name']}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)),
    "renice": lambda: priority_of(VICTIM),
    "prlimit": lambda: limit(VICTIM),
    "sched_setaffinity": lambda: affinity(VICTIM),
    "signal to memlint": lambda: c(C.kill(os.getppid(), 0)),
    "ptrace": lambda: (c(C.ptrace(16, VICTIM, None, None)), os.waitpid(VICTIM, 0), C.ptrace(17, VICTIM, None, None)),
    "kill": lambda: c(C.kill(TARGETS["prey"], 15)),
}
"""Each leaves a trace that the test looks for, or gives no error where it worked."""


def works(function):
    try:
        return str(function())
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def unix_socket_of_its_own():
    path = os.path.join(os.environ["TMPDIR"], "own")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)
        server.accept()[0].send(b"here")
        return client.recv(4).decode()


def pair():
    left, right = socket.socketpair()
    left.send(b"here")
    return right.recv(4).decode()


def loopback():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname(), timeout=5)
    server.accept()[0].send(b"here")
    return client.recv(4).decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1] > 0


def queue():
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=results.put, args=("here",))
    process.start()
    text = results.get(timeout=60)
    process.join()
    return text


def manager():
    with multiprocessing.Manager() as shared:
        return shared.list(["here"])[0]


def tensors():
    import torch

    shared = torch.arange(4).share_memory_()
    if (child := os.fork()) == 0:
        shared += 1
        os._exit(0)
    os.waitpid(child, 0)
    return shared.is_shared()


def own_mode():
    with open("own.sh", "w") as script:
        script.write("echo here")
    os.chmod("own.sh", 0o755)
    os.utime("own.sh", (1, 1))
    return "here"


def terminal():
    parent, child = pty.openpty()
    os.write(child, b"here")
    return os.read(parent, 4).decode()


WORKS = {
    "a socket of its own": unix_socket_of_its_own,
    "a pair of sockets": pair,
    "itself by TCP": loopback,
    "a free port": free_port,
    "a queue": queue,
    "a manager": manager,
    "tensors in shared memory": tensors,
    "modes of its own files": own_mode,
    "a terminal": terminal,
    "what lies there": lambda: open(file("chmod")).read(),
    "what lies in shared memory": lambda: open(f"/dev/shm/{TARGETS['name']}-before/file").read(),
    "whether a folder may be written": lambda: os.access(FILES, os.W_OK),
    "its own priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0)),
    "names of users": lambda: __import__("pwd").getpwuid(os.getuid()).pw_uid == os.getuid(),
}

if __name__ == "__main__":
    answer = {"works": {name: works(function) for name, function in WORKS.items()}, "raised": {}}
    for name, function in WAYS.items():
        try:
            function()
        except OSError as error:
            answer["raised"][name] = errno.errorcode.get(error.errno, str(error))
    with open("answer.json", "w") as answered:
        json.dump(answer, answered)
    print(json.dumps(answer))

"""The filter of system calls, run by a machine of the test: what it answers on both architectures."""

import errno
import socket
import struct

import pytest

from memlint.script.seccomp import Filter, assembled

X86_64, AARCH64 = 0xC000003E, 0xC00000B7  # linux/audit.h
ALLOWED, PROCESS, PARENT = None, 4242, 4000
NUMBERS = {  # of the tables of the kernel: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h
    X86_64: {
        "read": 0,
        "openat": 257,
        "socket": 41,
        "socketpair": 53,
        "connect": 42,
        "sendto": 44,
        "kill": 62,
        "fchmodat": 268,
        "utimensat": 280,
        "fsetxattr": 190,
        "shmget": 29,
        "prlimit64": 302,
        "setpriority": 141,
        "ioctl": 16,
        "mount": 165,
        "ptrace": 101,
        "execve": 59,
        "clone": 56,
        "io_uring_setup": 425,
    },
    AARCH64: {
        "read": 63,
        "openat": 56,
        "socket": 198,
        "socketpair": 199,
        "connect": 203,
        "sendto": 206,
        "kill": 129,
        "fchmodat": 53,
        "utimensat": 88,
        "fsetxattr": 7,
        "shmget": 194,
        "prlimit64": 261,
        "setpriority": 140,
        "ioctl": 29,
        "mount": 40,
        "ptrace": 117,
        "execve": 221,
        "clone": 220,
        "io_uring_setup": 425,
    },
}
FASTOPEN, FS_IOC_SETFLAGS, BTRFS_IOC_SNAP_DESTROY, TIOCSTI, TCGETS = 0x20000000, 0x40086602, 0x5000940F, 0x5412, 0x5401


def answer(program: bytes, architecture: int, number: int, arguments: tuple[int, ...] = ()) -> int | None:
    """The error with which a call is refused; None if it is allowed. `struct seccomp_data` is what the program sees."""
    padded = [each & 0xFFFFFFFFFFFFFFFF for each in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *padded)
    code = list(struct.iter_unpack("=HBBI", program))
    loaded = position = 0
    while True:
        operation, then, otherwise, value = code[position]
        position += 1
        match operation:
            case 0x20:
                loaded = struct.unpack_from("=I", data, value)[0]
            case 0x54:
                loaded &= value
            case 0x15:
                position += then if loaded == value else otherwise
            case 0x35:
                position += then if loaded >= value else otherwise
            case 0x06:
                assert value == 0x7FFF0000 or value >> 16 == 5
                return ALLOWED if value == 0x7FFF0000 else value & 0xFFFF
            case _:
                raise AssertionError(f"an unknown operation: {operation:#x}")


def wanted(network: str, *, keeps: bool = True) -> Filter:
    return Filter(network, keeps_files=keeps, keeps_segments=keeps, protected=(-1, 1, PARENT))  # type: ignore[arg-type]


CALLS = [
    ("none", "socket", (socket.AF_UNIX, socket.SOCK_STREAM), ALLOWED),
    ("none", "socket", (socket.AF_INET, socket.SOCK_STREAM), errno.EACCES),
    ("none", "socket", (16, socket.SOCK_RAW, 0), ALLOWED),  # NETLINK_ROUTE, which tells the addresses of this machine
    ("none", "socket", (16, socket.SOCK_RAW, 15), errno.EACCES),
    ("tcp", "socket", (socket.AF_INET, socket.SOCK_STREAM | 0x80800, 6), ALLOWED),
    ("tcp", "socket", (socket.AF_INET6, socket.SOCK_STREAM, 0), ALLOWED),
    ("tcp", "socket", (socket.AF_INET, socket.SOCK_STREAM, 262), errno.EACCES),  # multipath TCP
    ("tcp", "socket", (socket.AF_INET, socket.SOCK_DGRAM, 0), errno.EACCES),
    ("tcp", "socket", (socket.AF_INET, socket.SOCK_RAW, 1), errno.EACCES),
    ("tcp", "socket", (40, socket.SOCK_STREAM, 0), errno.EACCES),  # AF_VSOCK
    ("tcp", "sendto", (3, 0, 1, FASTOPEN | 0x40), errno.EOPNOTSUPP),
    ("tcp", "sendto", (3, 0, 1, 0x4000), ALLOWED),
    ("own", "socket", (socket.AF_INET, socket.SOCK_DGRAM, 0), ALLOWED),
    ("own", "socket", (40, socket.SOCK_STREAM, 0), errno.EACCES),  # which no namespace holds
    ("own", "socket", (17, socket.SOCK_RAW, 0), errno.EACCES),  # AF_PACKET
    *(("none", name, (), ALLOWED) for name in ("read", "openat", "socketpair", "connect", "execve", "clone")),
    ("none", "io_uring_setup", (), errno.ENOSYS),
    ("none", "mount", (), errno.EPERM),
    ("none", "ptrace", (), errno.EPERM),
    ("none", "fchmodat", (), 0),
    ("none", "utimensat", (), 0),
    ("none", "fsetxattr", (), errno.EOPNOTSUPP),
    ("none", "shmget", (), errno.EACCES),
    ("none", "kill", (PARENT, 15), errno.EPERM),
    ("none", "kill", (-1, 15), errno.EPERM),
    ("none", "kill", (PROCESS, 15), ALLOWED),
    ("none", "prlimit64", (0, 7), ALLOWED),
    ("none", "prlimit64", (PROCESS, 7), ALLOWED),
    ("none", "prlimit64", (PARENT, 7), errno.EPERM),
    ("none", "setpriority", (0, 0, 5), ALLOWED),
    ("none", "setpriority", (0, PARENT, 5), errno.EPERM),
    ("none", "setpriority", (2, 0, 5), errno.EPERM),  # PRIO_USER
    ("none", "ioctl", (3, FS_IOC_SETFLAGS), errno.ENOTTY),
    ("none", "ioctl", (3, BTRFS_IOC_SNAP_DESTROY), errno.ENOTTY),
    ("none", "ioctl", (0, TIOCSTI), errno.EPERM),
    ("none", "ioctl", (0, TCGETS), ALLOWED),
]


@pytest.mark.parametrize(("architecture", "column"), [(X86_64, 0), (AARCH64, 1)])
@pytest.mark.parametrize(("network", "name", "arguments", "expected"), CALLS)
def test_calls_are_answered_as_was_wanted(
    architecture: int, column: int, network: str, name: str, arguments: tuple[int, ...], expected: int | None
) -> None:
    program = assembled(wanted(network), architecture, column, PROCESS)
    assert answer(program, architecture, NUMBERS[architecture][name], arguments) == expected


@pytest.mark.parametrize("name", ["fchmodat", "utimensat", "fsetxattr", "shmget"])
def test_what_something_else_keeps_is_let_through(name: str) -> None:
    program = assembled(wanted("own", keeps=False), X86_64, 0, PROCESS)
    assert answer(program, X86_64, NUMBERS[X86_64][name]) is ALLOWED


def test_programs_of_other_architectures_make_no_call() -> None:
    program = assembled(wanted("own"), X86_64, 0, PROCESS)
    assert answer(program, 0x40000003, 102) == errno.ENOSYS  # i386, whose sockets have other numbers
    assert answer(program, X86_64, 0x40000000 + 41) == errno.ENOSYS  # x32

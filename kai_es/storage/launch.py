"""Start a program as another user, to die with its parent. Linux; elsewhere it only starts it.

Run by path in a fresh interpreter (`python -I -S launch.py PARENT UID GID PROGRAM ARG…`): so it
needs neither a current directory nor an installed package, and nothing runs between fork and exec
of a process that has threads. It imports the standard library only.

PostgreSQL refuses to run as root. A root caller therefore hands it to an ordinary user, who in
general may not enter the folders that hold the programs and the data (of root alone). One
capability, the right to read and enter any folder, bridges that; no permission on disk changes.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1  # containers keep this one by default
_CAP_DAC_READ_SEARCH = 2  # enough, and does not write


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def main(argv: list[str]) -> None:
    """Become the user, tie this process to its parent's life, become the program."""
    parent, uid, gid = (int(value) for value in argv[:3])
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    if os.geteuid() == 0 and uid != 0:
        if libc is not None:
            libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        if libc is not None and not _keep(libc, _CAP_DAC_READ_SEARCH):
            _keep(libc, _CAP_DAC_OVERRIDE)
    if libc is not None:
        # after setuid, which clears it; a fast shutdown for PostgreSQL
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
        if os.getppid() != parent:
            sys.exit("the parent is gone")
    os.execv(argv[3], argv[3:])


def _keep(libc: ctypes.CDLL, capability: int) -> bool:
    """Hold exactly one capability, also over exec. False = it is not ours to keep."""
    header = _Header(_CAP_VERSION_3, 0)
    bit = 1 << capability
    data = (_Data * 2)(_Data(bit, bit, bit), _Data(0, 0, 0))
    if libc.capset(ctypes.byref(header), ctypes.byref(data)) != 0:
        return False
    return bool(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0) == 0)


if __name__ == "__main__":
    main(sys.argv[1:])

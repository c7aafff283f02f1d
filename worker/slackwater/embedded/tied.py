"""A command that ends with whoever started it: `python tied.py PARENT SIGNAL USER COMMAND…`.

Rule: becomes that user, asks the kernel for SIGNAL when its parent dies, and turns into the command. Run by its path,
without site packages, so that it costs milliseconds. Where the kernel has no death signal the parent's own clean-up is
all there is.
"""

import ctypes
import os
import pwd
import sys

PR_SET_PDEATHSIG = 1


def become(name: str) -> None:
    """Before the death signal is asked for: changing the user forgets it."""
    entry = pwd.getpwnam(name)
    os.initgroups(name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def main(parent: int, number: int, user: str, command: list[str]) -> None:
    if user != "-":
        become(user)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)
    os.execvp(command[0], command)  # noqa: S606 - the command is ours


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])

"""What the system refused (no space, no such file, no permission), as an error that says where and how to mend it."""

from __future__ import annotations

import errno

from vcrt.errors import VcrtError

_AGAIN = "and give the same command again"
#: What was expected and how to mend it, by the system's number for the error.
_WORDS = {
    errno.ENOSPC: ("space left on the disk", f"free some space, {_AGAIN}"),
    errno.EDQUOT: ("room in your quota", f"free some space, {_AGAIN}"),
    errno.EACCES: ("permission to use it", f"change its permissions {_AGAIN}, or choose another"),
    errno.EPERM: ("permission to use it", f"change its owner {_AGAIN}, or choose another"),
    errno.EROFS: ("a file system that can be written to", "choose another place"),
    errno.ENOENT: ("a file or folder of that name", "check the name"),
    errno.ENOTDIR: ("folders on the way, not a file", "choose another path"),
    errno.EISDIR: ("a file", "name a file in it"),
    errno.EEXIST: (
        "a folder, or a name that is not taken",
        "choose another, or move that one away",
    ),
    errno.ENAMETOOLONG: ("a shorter name", "choose another"),
    errno.EMFILE: (
        "fewer open files",
        f"raise the limit (ulimit -n) {_AGAIN}, or use fewer --jobs",
    ),
    errno.ENOMEM: ("more memory", f"free some memory, {_AGAIN}, or use fewer --jobs"),
}


def named_error(error: OSError) -> VcrtError:
    """The error with its parts: the system's words, the file if it is known, what was expected and a remedy."""
    expected, remedy = _WORDS.get(error.errno or 0, (None, None))
    return VcrtError(
        error.strerror or str(error) or type(error).__name__,
        where=None if error.filename is None else str(error.filename),
        expected=expected,
        remedy=remedy,
    )

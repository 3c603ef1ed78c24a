"""The default store: objects as files in one directory, which the processes of one machine can share safely.

An object's key is its path under the data directory. ``.staging`` holds files that are written before they get a name, and
``.locks`` the lock files of `swap` and `delete`. A key cannot contain a dot, so neither can collide with an object. Files have
mode 0600, directories 0700. Directories are never removed, because that would race with processes that are about to use them.

The store works on POSIX systems only. It depends on link(2), rename(2), flock(2) and fsync(2), which `DirectoryStore.open` tests
at every start.
"""

from relayer.adapters.directory_store.store import DirectoryStore

__all__ = ["DirectoryStore"]

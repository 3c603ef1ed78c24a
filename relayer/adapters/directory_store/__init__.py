"""The embedded default: objects as files in one directory, shared safely by the processes of one machine.

Layout under the data directory: an object's key is its path; ``.staging`` holds files on their way to a name, ``.locks``
the lock files of `swap` and `delete`. A dot cannot stand in a key, so neither can meet an object. Files are 0600,
directories 0700. Directories are never removed: that would race with the processes that are about to use them.

POSIX only: it rests on link(2), rename(2), flock(2) and fsync(2), which `DirectoryStore.open` tries at every start.
"""

from relayer.adapters.directory_store.store import DirectoryStore

__all__ = ["DirectoryStore"]

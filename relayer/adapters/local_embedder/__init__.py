"""An embedder that needs neither network nor account: a small model in this process, on threads of its own."""

from relayer.adapters.local_embedder.embedder import Kind, LocalEmbedder, is_installed

__all__ = ["Kind", "LocalEmbedder", "is_installed"]

"""The adapter for OpenClaw: a plugin of plain JavaScript that forwards every event to a bridge process, and that process.

The JavaScript and its manifest are in this folder; ``docs/hosts/openclaw.md`` explains how to install them.
"""

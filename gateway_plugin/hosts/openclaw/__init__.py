"""OpenClaw: a plugin of plain JavaScript that hands every event over to a bridge process, and what that process does.

The JavaScript and its manifest lie beside this file; ``docs/hosts/openclaw.md`` tells how to install them.
"""

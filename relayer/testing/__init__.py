"""Fakes that ship: stores that step, fail and forget, and a clock that a test moves."""

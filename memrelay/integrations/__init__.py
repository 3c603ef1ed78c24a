"""Memory for agent frameworks: one module or package for each framework, with the framework's interface over `memrelay`.

An integration imports `memrelay`, the types of `relayer.wire.schemas` and its framework, and nothing else of this distribution.
Nothing imports this package: a program imports the integration that it uses, whose framework is in an extra of the same name.
"""

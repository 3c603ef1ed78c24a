"""The layer that relayer and plugin share: encodings, names, keys, seals, signatures and schemas.

It imports only light libraries, and no other package of the project.
"""

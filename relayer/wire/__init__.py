"""What relayer and plugin share: encodings, names, keys, seals, signatures, schemas. Light libraries only."""

"""``python -m gateway_plugin``: the ``memrelay-gateway`` command where its script is not on the path."""

from gateway_plugin.cli import main

if __name__ == "__main__":
    main()

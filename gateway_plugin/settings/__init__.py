"""The settings of a gateway, and the translation of the configurations of its hosts and of the plugins that it replaces."""

"""From memories to what a language model says about them, checked against the memories."""

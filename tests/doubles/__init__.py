"""Stand-ins for what a relayer gets from outside: stores that fail, scripted language models, repeatable randomness."""

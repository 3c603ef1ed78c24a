"""What an operator does to a store: verify, repair, back up, restore, inspect.

Unless it says otherwise, every function here raises `StoreError` when a store does not answer, and may then be run again. Keys
are the layout's, without the store's prefix.
"""

"""The commands by which an operator maintains a store: verify, repair, back up, restore, inspect, count and compact.

`catalogue` lists what a store holds and reads one log past any damage, and the other modules build on it. Unless its
docstring says otherwise, every function here raises `StoreError` if a store does not respond, and may then be run again. Keys of
objects are those of `relayer.log.objects.Layout`, without the store's prefix.
"""

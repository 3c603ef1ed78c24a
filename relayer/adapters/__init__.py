"""What fulfils the ports: stores, embedders, clocks. Only what composes a process imports these."""

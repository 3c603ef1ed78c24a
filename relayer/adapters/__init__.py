"""What fulfils the ports: stores, embedders, clocks. Only the composition root imports these."""

"""A linear-chain CRF: its loss in torch, and in NumPy best paths, forward-backward and probabilities of entities."""

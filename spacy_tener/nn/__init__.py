"""What architectures and embedders are made of: back ends, layers, and their parts in torch and in NumPy."""

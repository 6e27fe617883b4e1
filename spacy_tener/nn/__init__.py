"""Functions for running models with NumPy or PyTorch, and the neural network layers that all architectures share.

- `backends`, `backend_torch`, `run`: run a model with NumPy or PyTorch
- `shim`, `serialize`: wrap torch modules in Thinc models, and save their weights
- `compose`: Thinc layers that combine other layers
- `layers_torch`, `layers_numpy`: linear layers, embedding tables, convolutions and transformer layers
- `attention_torch`, `attention_numpy`: multi-head attention
- `ragged_torch`: pad sequences with different lengths
- `devices_torch`: copy tensors to a device, and set the number of CPU threads
- `graph`: build ONNX graphs for export
- `stack_config`: base class for the configs of transformer encoders
"""

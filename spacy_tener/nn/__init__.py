"""Back ends, and the layers in torch and NumPy from which embedders and architectures are built.

- `backends`, `backend_torch`, `run`: run a model with NumPy or torch
- `shim`, `serialize`: torch modules in Thinc models, and their weights on disk
- `compose`: Thinc layers that combine other layers
- `layers_torch`, `layers_numpy`, `attention_torch`, `attention_numpy`: linear layers, embedding tables, attention and
  so on
- `ragged_torch`, `devices_torch`: padding, and copies to a device
- `graph`: ONNX graphs, for export
- `stack_config`: the config of transformer layers
"""

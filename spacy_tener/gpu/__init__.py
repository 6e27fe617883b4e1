"""What a GPU does otherwise than a CPU.

No device has timed it. `research/results/gpu.md` says what was counted, and how to remove each part.
"""

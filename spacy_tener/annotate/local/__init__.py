"""Archives on one machine: all cores, bounded memory, and nothing lost whenever it is stopped."""

"""The components of Chinese characters."""

"""The radicals of Chinese characters."""

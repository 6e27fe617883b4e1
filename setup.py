"""Packaging, for tools that look for this file. Everything is declared in pyproject.toml."""

from setuptools import setup

setup()

"""The service: a page to try texts on, and an HTTP API. Needs the extra `serve`."""

from .app import make_app
from .schema import Limits
from .server import Server, address, bind, serve

__all__ = ["Limits", "Server", "address", "bind", "make_app", "serve"]

"""The service: a page to try texts on, and an HTTP API. Needs the extra `serve`."""

from .app import make_app
from .limits import Limits
from .server import Server, address, bind, run

__all__ = ["Limits", "Server", "address", "bind", "make_app", "run"]

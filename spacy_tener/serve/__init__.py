"""The service: a page to try texts on, and an HTTP API. Needs the extra `serve`."""

from .access import check_origins, read_api_key
from .app import Server, address, bind, make_app, serve
from .schema import Limits

__all__ = ["Limits", "Server", "address", "bind", "check_origins", "make_app", "read_api_key", "serve"]

"""An HTTP service that finds entities, with a page to try it and a backend for Label Studio.

    app = make_app({"zh": spacy.load("my_pipeline")})    # an ASGI application

`app` has the routes and the server, `service` the models, `worker` the queue of texts in front of each model, `schema`
the requests and responses, and `access` the API key. Requires the extra `serve`. Used by the command `serve`.
"""

from .access import check_origins, read_api_key
from .app import Server, address, bind, make_app, serve
from .schema import Limits

__all__ = ["Limits", "Server", "address", "bind", "check_origins", "make_app", "read_api_key", "serve"]

"""HTTP service for named entity recognition, with a demo page and a Label Studio backend.

    app = make_app({"zh": spacy.load("my_pipeline")})    # an ASGI application

- `app`: the ASGI application with its routes, and the server.
- `service`: the served models.
- `worker`: each model's queue, and dynamic batching.
- `schema`: request and response models.
- `access`: API key and request limits.
- `ml_backend`: the Label Studio backend.
- `metrics`: Prometheus metrics.

Requires the `serve` extra. Used by the command `serve`.
"""

from .access import check_origins, read_api_key
from .app import Server, address, bind, make_app, serve
from .schema import Limits

__all__ = ["Limits", "Server", "address", "bind", "check_origins", "make_app", "read_api_key", "serve"]

"""What `bedplate run` sees of a loader: waiting for batches, and the counters behind it."""

import sys
from time import monotonic_ns as now
from typing import Any


class Wait:
    """A context manager around each wait for a batch; nothing outside `bedplate run`."""

    def __init__(self, loader: Any) -> None:
        self._ring: Any = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass

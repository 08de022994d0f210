"""What `bedplate.step()` and `bedplate.phase()` do inside `bedplate run`."""

import json
from time import monotonic_ns as now

from . import device, ring

_VALIDATION_NAMES = ("validation", "eval")
_phases = {}


def step():
    """A step boundary the script knows better than the optimizer does."""
    at = now()
    ring.emit(ring.USER_STEP, at, at)
    ring.set_role(ring.ROLE_RANK)
    device.poll()


def phase_number(name):
    """Numbers count up from 1 in order of first use; the text line `phase_name` names them."""
    try:
        return _phases[name]
    except KeyError:
        number = _phases[name] = len(_phases) + 1
        ring.claim()
        ring.sticky_text("phase_name", json.dumps({"id": number, "name": name[:200]}))
        return number


def phase_begin(name):
    return (device.begin(ring.PHASE), now())


def phase_end(name, token):
    mark, began = token
    ended = now()
    device.end(mark, began)
    kind = ring.VALIDATION if name in _VALIDATION_NAMES else ring.PHASE
    ring.emit(kind, began, ended, phase_number(name))

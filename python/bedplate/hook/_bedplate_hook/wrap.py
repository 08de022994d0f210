"""Replacing a function by one that measures, so that nobody but a measurement can tell.

    replace(module, "save", lambda original: wrapper, hook="checkpoint")

The wrapper gets the original's name, signature, docstring and attributes, is replaced only once
(reload-safe), and its code object carries a file name that the warnings module skips when it
counts `stacklevel` frames: a deprecation warning of a wrapped function still points at the user's
line.
"""

import functools
import sys

from . import ring

_ORIGINAL = "__bedplate_original__"
# warnings skips frames whose file name contains "importlib" and "_bootstrap" (its way not to blame
# the import system). crash.py cuts the same frames out of the traceback of an uncaught exception.
HOOK_FILE = "<bedplate hook importlib _bootstrap>"
_replaced = []


def transparent(function):
    """Makes the frames of `function` invisible to warnings and to uncaught tracebacks."""
    function.__code__ = function.__code__.replace(co_filename=HOOK_FILE)
    return function


def replace(owner, name, make, hook):
    """owner.name = make(owner.name). False when the name is absent or already replaced."""
    original = getattr(owner, name, None)
    if original is None or hasattr(original, _ORIGINAL):
        return False
    wrapper = transparent(make(original))
    try:
        functools.update_wrapper(wrapper, original)
    except Exception:
        wrapper.__name__ = name
    setattr(wrapper, _ORIGINAL, original)
    setattr(owner, name, wrapper)
    _replaced.append((owner, name, original, wrapper))
    ring.note_active(hook)
    return True


def mend_aliases():
    """Points names that were imported before the patch at the wrappers (torch came before us)."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not names or not str(names.get("__name__", "")).startswith(("torch", "__main__")):
            continue
        for _owner, name, original, wrapper in _replaced:
            if names.get(name) is original:
                names[name] = wrapper

# Bedplate's foot in the door of a Python job, and gone again at once.
#
# `bedplate run` puts this folder first on PYTHONPATH, so every Python that the job starts imports
# this file from site.py. It arms the hook (a few hundred microseconds, no claim on shared memory,
# no torch) and then hands over to the sitecustomize the job would have had: this folder leaves
# sys.path, this module leaves sys.modules, and `import sitecustomize` runs again. Whatever that
# raises, site.py reports exactly as it always does; when there is none, the ImportError that
# site.py swallows is the same one too, so the job sees a Python without any sitecustomize.
#
# This file must also parse and do no harm on Pythons too old for the hook (2.7, 3.5 to 3.7).
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _arm():
    # A nested `bedplate run` meets the outer run's copy second: the first one stays in charge.
    if (
        sys.version_info >= (3, 8)
        and os.environ.get("BEDPLATE_TRACE")
        and "_bedplate_hook" not in sys.modules
    ):
        # Compiling costs five times what the rest does; the run's own folder may hold bytecode
        # whatever the job has chosen for its files.
        writes_none = sys.dont_write_bytecode
        sys.dont_write_bytecode = False
        try:
            import _bedplate_hook

            if writes_none and not os.path.exists(__spec__.cached):
                __spec__.loader.get_code("sitecustomize")
        finally:
            sys.dont_write_bytecode = writes_none
        _bedplate_hook.arm()


try:
    _arm()
except Exception:
    # Said where something listens; a hook that cannot even be imported leaves no one to tell.
    try:
        sys.modules["_bedplate_hook"].off("sitecustomize", sys.exc_info()[1])
    except Exception:
        pass

sys.path[:] = [entry for entry in sys.path if entry != _here]
sys.path_importer_cache.pop(_here, None)

# Python 2 clears the globals of a module that dies; the name keeps this one alive to its last line.
_this_module = sys.modules.pop("sitecustomize", None)

import sitecustomize  # noqa: E402,F401  the user's own; its errors are site.py's to report

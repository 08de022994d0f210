"""Parts that belong to the process rather than to torch: armed when the torch import is complete."""

from . import device, ring


def torch_imported(torch):
    device.set_compiler(torch)
    ring.sticky_text("torch", getattr(torch, "__version__", "?"))
    for part in (_garbage, _checkpoint, _files, _crash):
        try:
            part()
        except Exception as problem:
            ring.note_off(part.__name__.strip("_"), problem)
    ring.claim()


def _garbage():
    from . import garbage

    garbage.install()


def _checkpoint():
    from . import checkpoint

    checkpoint.patch_sync()


def _files():
    from . import files

    files.install()


def _crash():
    from . import crash

    crash.install()

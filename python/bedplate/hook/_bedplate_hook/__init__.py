"""The Bedplate hook: what a training job's Python tells `bedplate run` about its steps.

    sitecustomize  ->  arm()  ->  import hook  ->  patches.<module>  ->  ring.emit(...)

`arm()` runs in every Python process of the job and therefore does next to nothing: one entry in
sys.meta_path and a chained sys.excepthook. Only when torch is imported, when the script calls
`bedplate.step()` / `bedplate.phase()`, or when it dies of an exception does the process claim a
slot of the shared memory (ring.py).

The rule for all code here: the job must not notice. Results, random numbers, printed text, file
descriptors below 3 + what the job opens, signal dispositions and the number of threads stay as
they were. A part that fails switches itself off and says why (`off`).
"""

import sys

__version__ = "1"

# Module -> function of patches.py that is called once the module's code has run. The names in
# one module are wrapped before anyone can import them from there: `from torch.distributed import
# all_reduce` sees the wrapped function whenever it runs.
TARGETS = {
    "torch": "torch_imported",
    "torch.serialization": "serialization",
    "torch.autograd": "autograd",
    "torch.cuda": "cuda",
    "torch.optim.optimizer": "optimizer",
    "torch.utils.data.dataloader": "dataloader",
    "torch.utils.data._utils.fetch": "fetch",
    "torch.utils.data._utils.worker": "worker",
    "torchdata.stateful_dataloader.stateful_dataloader": "stateful_dataloader",
    "torchdata.stateful_dataloader.worker": "stateful_worker",
    "torch.multiprocessing.spawn": "spawn",
    "torch.distributed.distributed_c10d": "collectives",
    "torch.nn.parallel.distributed": "ddp",
    "torch.distributed.checkpoint.state_dict_saver": "distributed_checkpoint",
    "safetensors.torch": "safetensors",
}

_previous_excepthook = None


class _TorchFinder:
    """Finds nothing itself: asks the other finders and adds a tail to the loader they return.

    The loader object stays the one Python made (its class, get_source, get_data ... are what
    tools look at); only its exec_module is shadowed on the instance until it has run once. A
    spec that nobody executes is therefore harmless, and importlib.reload comes by here again.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in TARGETS:
            return None
        for finder in list(sys.meta_path):
            if finder is _finder:
                continue
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                try:
                    _add_tail(spec.loader, name)
                except Exception as problem:
                    off(name, problem)
                return spec
        return None

    @staticmethod
    def invalidate_caches():
        pass


_finder = _TorchFinder()


def _add_tail(loader, name):
    run_module = loader.exec_module

    def exec_module(module):
        run_module(module)
        loader.__dict__.pop("exec_module", None)
        patched(name, module)

    # Python cuts frames of this file and function name out of the traceback of a failed import,
    # so that `import torch` of a broken torch prints what it prints without Bedplate.
    exec_module.__code__ = exec_module.__code__.replace(
        co_filename="<frozen importlib._bootstrap>", co_name="_call_with_frames_removed"
    )
    loader.exec_module = exec_module


def patched(name, module):
    """Runs the patch that belongs to a freshly executed module; never raises."""
    try:
        from . import patches

        getattr(patches, TARGETS[name])(module)
    except Exception as problem:
        off(name, problem)


def arm():
    """Called by sitecustomize, once a process."""
    global _previous_excepthook
    already_there = [name for name in TARGETS if name in sys.modules]
    sys.meta_path.insert(0, _finder)
    _previous_excepthook = sys.excepthook
    # Libraries ask `sys.excepthook is sys.__excepthook__` to learn whether they may install
    # theirs; the answer stays what it was. User hooks that end in sys.__excepthook__ come by too.
    if sys.excepthook is sys.__excepthook__:
        sys.__excepthook__ = _excepthook
    sys.excepthook = _excepthook
    # A .pth file may have imported torch before us: its names are out, so aliases are mended.
    for name in already_there:
        patched(name, sys.modules[name])
    if already_there:
        from . import wrap

        wrap.mend_aliases()


def _excepthook(kind, value, traceback):
    try:
        from . import crash

        crash.uncaught(kind, value, traceback)
    except Exception as problem:
        off("exception", problem)
    if issubclass(kind, KeyboardInterrupt):
        _mark_interrupted()
    _previous_excepthook(kind, value, traceback)


def _mark_interrupted():
    """Lets the interpreter end by SIGINT, as a shell loop around it wants to see.

    It does so when the last string of code that it ran ended by KeyboardInterrupt
    (run_eval_code_obj() in CPython's pythonrun.c); the modules that crash.py imports run such
    strings since, inside namedtuple().
    """
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        pass


def off(name, reason):
    """Records that the part `name` of the hook is off, and why. Never raises, claims nothing."""
    try:
        from . import ring

        if isinstance(reason, BaseException):
            reason = "%s: %s" % (type(reason).__name__, reason)
        ring.note_off(name, reason)
    except Exception:
        pass


def active():
    """True when events of this process reach a collector (claims a slot if there is none yet)."""
    try:
        from . import ring

        return ring.claim() is not None
    except Exception:
        return False

"""Saving and loading (CHECKPOINT, LOAD) and what the disk makes of it (FSYNC)."""

import json
import os
import threading
from time import monotonic_ns as now

from . import ring, wrap

_thread = threading.local()
_MOST_PATHS = 64
_paths = [0]


def _fork_child():
    global _thread
    _thread = threading.local()


ring.at_fork(_fork_child)


def _path_of(target):
    if isinstance(target, (str, bytes, os.PathLike)):
        return os.fsdecode(target)
    name = getattr(target, "name", None)
    return os.fsdecode(name) if isinstance(name, (str, bytes)) else ""


def _size_of(path):
    try:
        return os.stat(path).st_size if path else 0
    except OSError:
        return 0


def _timed(kind, position, keyword):
    """Times a save or load whose file is argument `position` or `keyword`."""

    def make(original):
        def transfer(*args, **kwargs):
            if getattr(_thread, "inside", False):
                return original(*args, **kwargs)
            _thread.inside = True
            began = now()
            mark = ring.open_mark(ring.CHECKPOINT, began) if kind == ring.CHECKPOINT else None
            try:
                return original(*args, **kwargs)
            finally:
                ended = now()
                _thread.inside = False
                if mark is not None:
                    ring.close_mark(mark)
                target = args[position] if len(args) > position else kwargs.get(keyword)
                _report(kind, began, ended, target)

        return transfer

    return make


def _report(kind, began, ended, target):
    try:
        path = _path_of(target)
        ring.emit(kind, began, ended, _size_of(path))
        if path and _paths[0] < _MOST_PATHS:
            _paths[0] += 1
            key = "ckpt_path" if kind == ring.CHECKPOINT else "load_path"
            ring.text(key, os.path.abspath(path))
    except Exception as problem:
        ring.note_off("checkpoint", problem)


def _timed_sync(original):
    def sync(fd):
        began = now()
        try:
            return original(fd)
        finally:
            if ring.has_slot():
                ring.emit(ring.FSYNC, began, now())

    return sync


def patch_serialization(module):
    wrap.replace(module, "save", _timed(ring.CHECKPOINT, 1, "f"), "checkpoint")
    wrap.replace(module, "load", _timed(ring.LOAD, 0, "f"), "checkpoint")


def patch_distributed(module):
    save = _timed(ring.CHECKPOINT, 99, "checkpoint_id")
    for name in ("save", "async_save", "save_state_dict"):
        wrap.replace(module, name, save, "distributed_checkpoint")


def patch_safetensors(module):
    wrap.replace(module, "save_file", _timed(ring.CHECKPOINT, 1, "filename"), "safetensors")
    wrap.replace(module, "load_file", _timed(ring.LOAD, 0, "filename"), "safetensors")


def patch_sync():
    wrap.replace(os, "fsync", _timed_sync, "fsync")
    wrap.replace(os, "fdatasync", _timed_sync, "fsync")

"""Finding, claiming and mapping a slot of the trace: what a process does once, if at all.

The layout is trace protocol 1 (src/probe/trace_format.h): a file header, then slots, each a header
of 128 bytes, a text area and a ring of 32-byte records. Slots are claimed under a POSIX lock on the
first byte of the file, held for microseconds.
"""

import os
import struct
import sys
from time import monotonic_ns as now

FREE, CLAIMED, CLOSED = 0, 1, 2
SLOT_HEADER = 128
_MAGIC = b"BEDPTRC1"
_FILE_HEADER = 4096
_RECORD = 32
_OFF_NEXT_HINT = 32
_PATIENCE_NS = 50_000_000

_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_VARIABLES = (
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
)


class Unavailable(Exception):
    """There is no usable ring; the text says why."""


class Slot:
    """A mapped slot. Owns the mapping; `words` is the slot as 64-bit integers."""

    def __init__(self, mapping, delta, slot_bytes, text_bytes, records):
        self.mapping = mapping
        self.base = delta
        self.view = memoryview(mapping)
        self.slice = self.view[delta : delta + slot_bytes]
        self.words = self.slice.cast("Q")
        self.text_bytes = text_bytes
        self.text_used = 0
        self.text_lost = 0
        self.first_record = (SLOT_HEADER + text_bytes) // 8
        self.mask = records - 1

    def put(self, format_, offset, value):
        struct.pack_into("=" + format_, self.mapping, self.base + offset, value)

    def unmap(self):
        for view in (self.words, self.slice, self.view):
            view.release()
        self.mapping.close()


def claim_slot(role, known_rank):
    """The mapped slot of this process. Raises Unavailable, or OSError where the system says no."""
    path = os.environ.get("BEDPLATE_TRACE")
    if not path:
        raise Unavailable("BEDPLATE_TRACE is not set")
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        header = os.pread(descriptor, 40, 0)
        if len(header) < 40 or header[:8] != _MAGIC:
            raise Unavailable("%s is not a Bedplate trace" % path)
        slots, slot_bytes, records, text_bytes, first = struct.unpack_from("=IIIII", header, 8)
        if (
            not slots
            or not records
            or records & (records - 1)
            or (text_bytes | slot_bytes | first) & 7
            or first < _FILE_HEADER
            or slot_bytes < SLOT_HEADER + text_bytes + records * _RECORD
        ):
            raise Unavailable("%s has a header this hook does not understand" % path)
        _lock_byte(descriptor)
        try:
            offset = _take_free_slot(descriptor, slots, slot_bytes, first, role, known_rank)
        finally:
            _unlock_byte(descriptor)
        return _map_slot(descriptor, offset, slot_bytes, text_bytes, records)
    finally:
        os.close(descriptor)


def _lock_byte(descriptor):
    import fcntl
    import time

    deadline = now() + _PATIENCE_NS
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
            return
        except OSError:
            if now() > deadline:
                raise Unavailable("the trace stayed locked for 50 ms")
            time.sleep(0.001)


def _unlock_byte(descriptor):
    import fcntl

    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, 0, os.SEEK_SET)


def _take_free_slot(descriptor, slots, slot_bytes, first, role, known_rank):
    (hint,) = struct.unpack("=I", os.pread(descriptor, 4, _OFF_NEXT_HINT))
    for step in range(slots):
        index = (hint + step) % slots
        offset = first + index * slot_bytes
        if os.pread(descriptor, 4, offset) == b"\0\0\0\0":
            rank, world, local = rank_or_environment(known_rank)
            header = struct.pack(
                "=IIIiQQQIIIIiiI",
                FREE,
                os.getpid(),
                os.getppid(),
                rank,
                now(),
                0,
                0,
                0,
                0,
                0,
                0,
                world,
                local,
                role,
            )
            os.pwrite(descriptor, header.ljust(SLOT_HEADER, b"\0"), offset)
            os.pwrite(descriptor, struct.pack("=I", (index + 1) % slots), _OFF_NEXT_HINT)
            os.pwrite(descriptor, struct.pack("=I", CLAIMED), offset)
            return offset
    raise Unavailable("all %d slots of the trace are taken" % slots)


def _map_slot(descriptor, offset, slot_bytes, text_bytes, records):
    import mmap

    start = offset - offset % mmap.ALLOCATIONGRANULARITY
    delta = offset - start
    options = {"flags": mmap.MAP_SHARED, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
    if sys.version_info >= (3, 13):
        options["trackfd"] = False  # no descriptor of ours stays open in the job
    mapping = mmap.mmap(descriptor, delta + slot_bytes, offset=start, **options)
    return Slot(mapping, delta, slot_bytes, text_bytes, records)


def rank_or_environment(known_rank):
    """[rank, world size, local rank]: what is known (>= 0), else what launchers put in variables."""
    found = []
    for known, names in zip(known_rank, (_RANK_VARIABLES, _WORLD_VARIABLES, _LOCAL_VARIABLES)):
        for name in names:
            if known >= 0:
                break
            value = os.environ.get(name, "")
            if value.isdigit() and len(value) < 10:
                known = int(value)
        found.append(known)
    return found



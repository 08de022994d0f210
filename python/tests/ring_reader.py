"""A collector in a few lines: makes the shared memory, reads what the hook and trace.h wrote.

    with Trace(tmp_path) as trace:
        subprocess.run([...], env=trace.environment())
        (process,) = trace.processes()
        process.records("STEP")

It is the tests' second implementation of trace protocol 1, written from the protocol and not from
the writers. Not a model for the real collector: it never frees a slot while it reads.
"""

import json
import mmap
import os
import shutil
import struct
from collections import namedtuple

HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bedplate", "hook")
KINDS = (
    "NONE STEP OPTIMIZER INPUT_WAIT BACKWARD COLLECTIVE DDP_COMM CHECKPOINT GC FETCH FILES H2D "
    "DEVICE_SYNC PHASE USER_STEP BYTES LOAD FSYNC VALIDATION GPU_PHASE DATA"
).split()
HEADER = 4096
SLOT_HEADER = 128

Record = namedtuple("Record", "kind t0 dur tid arg seq index")


class Process:
    """One slot as it is at the moment of reading."""

    def __init__(self, memory, offset, text_bytes, records):
        words = struct.unpack_from("<IIIiQQQIIIIiiIII", memory, offset)
        (self.state, self.pid, self.ppid, self.rank, self.claim_ns, self.head) = words[:6]
        (self.open_since, self.open_kind, self.open_arg) = words[6:9]
        (text_used, self.text_lost, self.world_size, self.local_rank, self.role) = words[9:14]
        self.dump_signal = words[15]
        start = offset + SLOT_HEADER
        self.raw_text = bytes(memory[start : start + text_used])
        self.lost = 0
        self.all_records = []
        first = max(0, self.head - records)
        for index in range(first, self.head):
            at = start + text_bytes + (index % records) * 32
            t0, dur, kind, seq, tid, arg = struct.unpack_from("<QQHHIQ", memory, at)
            if seq != index & 0xFFFF or not 0 < kind < len(KINDS):
                self.lost += 1
                continue
            self.all_records.append(Record(KINDS[kind], t0, dur, tid, arg, seq, index))
        self.lost += first

    def records(self, *kinds):
        return [r for r in self.all_records if r.kind in kinds] if kinds else self.all_records

    def count(self, kind):
        return len(self.records(kind))

    def texts(self, key):
        found = []
        for line in self.raw_text.decode("utf-8").split("\n"):
            name, _, value = line.partition("\t")
            if name == key:
                found.append(_unescape(value))
        return found

    def text(self, key):
        values = self.texts(key)
        return values[0] if values else None

    def jsons(self, key):
        return [json.loads(value) for value in self.texts(key)]

    def hooks(self):
        return {name for line in self.texts("hooks") for name in line.split(",")}


def _unescape(value):
    out, escaped = [], False
    for letter in value:
        if escaped:
            out.append({"t": "\t", "n": "\n"}.get(letter, letter))
            escaped = False
        elif letter == "\\":
            escaped = True
        else:
            out.append(letter)
    return "".join(out)


class Trace:
    """The memfd and the run folder of one `bedplate run`."""

    def __init__(self, folder, slots=64, records=8192, text=16384, magic=b"BEDPTRC1"):
        self.run = os.path.join(str(folder), "run")
        self.hook = os.path.join(self.run, "hook")
        shutil.copytree(HOOK, self.hook, ignore=shutil.ignore_patterns("__pycache__"))
        self.slots, self.record_count, self.text_bytes = slots, records, text
        self.slot_bytes = SLOT_HEADER + text + records * 32
        self.descriptor = os.memfd_create("bedplate-trace", os.MFD_CLOEXEC)
        size = HEADER + slots * self.slot_bytes
        os.ftruncate(self.descriptor, size)
        self.memory = mmap.mmap(self.descriptor, size)
        header = (slots, self.slot_bytes, records, text, HEADER, 0, 0)
        self.memory[:36] = magic + struct.pack("<IIIIIII", *header)
        self.path = "/proc/%d/fd/%d" % (os.getpid(), self.descriptor)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.memory.close()
        os.close(self.descriptor)

    def environment(self, base=None, **more):
        environment = dict(os.environ if base is None else base)
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONPATH"):
            environment.pop(name, None)
        path = [self.hook]
        if more.get("PYTHONPATH"):
            path.append(more.pop("PYTHONPATH"))
        environment.update(
            BEDPLATE_TRACE=self.path, BEDPLATE_RUN=self.run, PYTHONPATH=os.pathsep.join(path)
        )
        environment.update(more)
        return environment

    def slot_offset(self, index):
        return HEADER + index * self.slot_bytes

    def processes(self):
        """Every slot that was ever claimed, oldest first."""
        found = []
        for index in range(self.slots):
            offset = self.slot_offset(index)
            if struct.unpack_from("<I", self.memory, offset)[0]:
                found.append(Process(self.memory, offset, self.text_bytes, self.record_count))
        return sorted(found, key=lambda process: process.claim_ns)

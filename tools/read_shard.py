#!/usr/bin/env python3
"""Reads a packed shard with nothing but the standard library, as docs/formats.md specifies it.

    read_shard.py FILE            # the schema, and a line of JSON with sizes for each sample
    read_shard.py FILE NUMBER     # one sample: column, dtype, shape, first values

The proof that the page is enough to write a reader from; slow, and meant to stay short. Every checksum is checked.
"""

import json
import math
import struct
import sys

PAGE = 4096
DTYPES = {"i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f16": "e", "bf16": "H",
          "f32": "f", "f64": "d", "bool": "?"}


def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def check(condition, what):
    if not condition:
        raise ValueError(what)


def round_up(at, to):
    return (at + to - 1) // to * to


class Shard:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        magic, self.header_bytes, schema_bytes, flags, crc = struct.unpack_from("<8sIIII", self.bytes)
        check(magic == b"BPSHARD1", "no packed shard")
        schema = self.bytes[24:24 + schema_bytes]
        check(crc == crc32c(self.bytes[:20] + schema), "the header's checksum is wrong")
        check(flags == 0, "flags that are not known")
        self.columns = json.loads(schema)["columns"]
        self.records = self._index()

    def _index(self):
        """(place, bytes, checksum) of each record."""
        end = len(self.bytes) - 56
        index, count, _, size, index_crc, flags, _, crc, magic = struct.unpack_from("<QQQQIIII8s", self.bytes, end)
        check(magic == b"BPINDEX1" and crc == crc32c(self.bytes[end:end + 44]), "the end is missing")
        check(flags == 0 and size == len(self.bytes), "not the whole file, or flags that are not known")
        check(index_crc == crc32c(self.bytes[index:end]), "the index's checksum is wrong")
        places = struct.unpack_from(f"<{count}Q", self.bytes, index)
        entries = struct.iter_unpack("<II", self.bytes[index + 8 * count:end])
        return [(place, *entry) for place, entry in zip(places, entries)]

    def blocks(self):
        """The records of all whole blocks, as (place, bytes, checksum): what a file without an end still has."""
        found, at = [], self.header_bytes
        while at + 48 <= len(self.bytes):
            magic, _, first, data_bytes, count, table_crc, flags, crc = struct.unpack_from("<8sQQQIIII", self.bytes, at)
            if magic != b"BPBLOCK1" or crc != crc32c(self.bytes[at:at + 44]) or first != len(found) or flags != 0:
                break
            table = self.bytes[at + 48:at + 48 + 8 * count]
            data = round_up(at + 48 + 8 * count, PAGE)
            if table_crc != crc32c(table) or data + data_bytes > len(self.bytes):
                break
            place = data
            for size, record_crc in struct.iter_unpack("<II", table):
                place = round_up(place, 8)
                found.append((place, size, record_crc))
                place += size
            at = round_up(data + data_bytes, PAGE)
        return found

    def sample(self, number):
        """{column: (dtype, shape, bytes)}"""
        place, size, crc = self.records[number]
        record = self.bytes[place:place + size]
        check(crc == crc32c(record), f"the checksum of sample {number} is wrong")
        variable = [c for c in self.columns if c["dtype"] in ("bytes", "utf8") or c.get("shape", [0])[:1] == [-1]]
        lengths = iter(struct.unpack_from(f"<{len(variable)}I", record))
        at, out = 4 * len(variable), {}
        for column in self.columns:
            dtype, shape = column["dtype"], list(column.get("shape", []))
            width = struct.calcsize("<" + DTYPES[dtype]) if dtype in DTYPES else 1
            count = next(lengths) if column in variable else width * math.prod(shape)
            if dtype not in DTYPES:
                shape = [count]
            elif column in variable:
                unit = width * math.prod(shape[1:])
                shape[0] = count // unit if unit else 0
            at = round_up(at, width)
            check(at + count <= len(record), f"sample {number} has no room for {column['name']}")
            out[column["name"]] = (dtype, shape, record[at:at + count])
            at += count
        check(at == len(record), f"sample {number} is longer than its columns")
        return out


def values(dtype, data, most=8):
    if dtype == "utf8":
        return data.decode()[:60]
    if dtype == "bytes":
        return data[:16].hex()
    width = struct.calcsize("<" + DTYPES[dtype])
    return [value for value, in struct.iter_unpack("<" + DTYPES[dtype], data[:most * width])]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    shard = Shard(sys.argv[1])
    if len(sys.argv) == 3:
        for name, (dtype, shape, data) in shard.sample(int(sys.argv[2])).items():
            print(name, dtype, shape, values(dtype, data))
        return
    print(json.dumps(shard.columns))
    for number in range(len(shard.records)):
        print(json.dumps({name: len(data) for name, (_, _, data) in shard.sample(number).items()}))


if __name__ == "__main__":
    main()

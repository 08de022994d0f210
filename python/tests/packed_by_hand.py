"""A packed shard written from docs/formats.md, with right checksums around whatever records it is given."""

import json
import struct

_TABLE = []


def crc32c(content, crc=0):
    if not _TABLE:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            _TABLE.append(byte)
    crc ^= 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _padded(content, to):
    return content + bytes(-len(content) % to)


def packed(records, schema):
    """The bytes of a shard of one block."""
    text = json.dumps(schema).encode()
    head = b"BPSHARD1" + struct.pack("<III", 4096, len(text), 0)
    head += struct.pack("<I", crc32c(head + text)) + text
    table = b"".join(struct.pack("<II", len(record), crc32c(record)) for record in records)
    first = 4096 + (48 + len(table) + 4095) // 4096 * 4096
    body, places = b"", []
    for record in records:
        body = _padded(body, 8)
        places.append(first + len(body))
        body += record
    block = b"BPBLOCK1" + struct.pack("<QQQIII", 0, 0, len(body), len(records), crc32c(table), 0)
    block += struct.pack("<I", crc32c(block))
    out = _padded(_padded(head, 4096) + _padded(block + table, 4096) + body, 4096)
    index = struct.pack("<%dQ" % len(places), *places) + table
    trailer = struct.pack("<QQQQIII", len(out), len(records), 1, len(out) + len(index) + 56, crc32c(index), 0, 0)
    return out + index + trailer + struct.pack("<I", crc32c(trailer)) + b"BPINDEX1"

"""An independent reader of activations.stream: it knows nothing of llamatap or its index.

Usage: read.py FILE none|lz4|zstd. Prints one JSON line per packet: name and element values, taken as binary16.
"""
import json
import struct
import sys


def decompressor(codec):
    if codec == "lz4":
        import lz4.frame
        return lz4.frame.decompress
    if codec == "zstd":
        import zstandard
        return zstandard.ZstdDecompressor().decompress
    return bytes


def packets(f):
    while len(header := f.read(6)) == 6:
        name_len, data_len = struct.unpack("!HI", header)
        name, data = f.read(name_len), f.read(data_len)
        if len(data) < data_len:
            return
        yield name.decode(), data


decompress = decompressor(sys.argv[2])
with open(sys.argv[1], "rb") as stream:
    for name, data in packets(stream):
        raw = decompress(data)
        print(json.dumps([name, struct.unpack(f"<{len(raw) // 2}e", raw[: len(raw) // 2 * 2])]))

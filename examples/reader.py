"""Reads activations.stream with its index on NumPy alone: python reader.py RUN/activations.stream

tensors(path) yields Tensor tuples in stream order. Arrays lie in the mapped file, nothing is copied (bf16 is widened). Runs recorded
with --tap-codec none only; the others: llamatap export RUN --to npy. Checksums are not compared: llamatap verify does that.
"""
import collections, mmap, struct, sys
import numpy as np
# layer is -1 where there is none. tokens and positions are arrays, one entry per row of array, or None where its rows are no tokens;
# a block of a large tensor, or a sample of one (piece is true), is flat.
Tensor = collections.namedtuple("Tensor", "name layer ctx execution tokens positions array piece")
TYPES = {0: "u1", 1: "<f4", 2: "<f2", 3: "<u2", 4: "<f8", 5: "i1", 6: "<i2", 7: "<i4", 8: "<i8"}

class Fields:
    """Takes a record's payload apart."""
    def __init__(self, data): self.data, self.at = data, 0
    def bytes(self, n): self.at += n; return self.data[self.at - n:self.at]
    def uint(self):
        byte, = self.bytes(1)
        return byte if byte < 128 else byte - 128 + (self.uint() << 7)
    def int(self): n = self.uint(); return n >> 1 ^ -(n & 1)
    def string(self): return self.bytes(self.uint()).decode()

def tensors(path):
    index = open(path + ".idx", "rb").read()
    assert index[:8] == b"\x89LTIDX\r\n" and index[8:10] == b"\1\0", f"{path}.idx: no index of version 1"
    with open(path, "rb") as f: stream = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    nodes, position, at = [], {}, 64
    while at + 12 <= len(index):
        size, kind = int.from_bytes(index[at + 4:at + 7], "little"), index[at + 7]
        if at + 12 + size > len(index): return  # its end is being written, or was cut off
        f, at = Fields(index[at + 12:at + 12 + size]), at + 12 + size
        if kind == 1:
            f.uint(); name = f.string(); f.string(); f.string(); f.uint()
            nodes.append((name, f.int(), *f.bytes(3)[1:], f.uint()))  # layer, row kind, row dimension, context
        elif kind == 3:
            f.uint(); f.uint(); f.uint(); f.bytes(1); f.int(); f.int(); first = f.int()
            for row in range(f.uint()):
                f.bytes(2); token = first + row + f.int(); f.int(); position[token] = f.int()
                for _ in range(f.uint()): f.int()
        elif kind == 2: yield packet(f, stream, nodes, position)

def packet(f, stream, nodes, position):
    flags = f.uint(); name, layer, rows, dim, ctx = nodes[f.uint()]
    offset, stored = f.uint(), f.uint()
    _, dtype, codec, _ = struct.unpack("<IBBB", f.bytes(7))
    assert codec == 0, f"{name}: compressed; use llamatap export"
    f.uint(); f.uint(); f.uint(); execution = f.uint(); f.int()
    ne, first, count = [f.uint() for _ in range(4)], f.int(), f.uint()
    array = np.frombuffer(stream, TYPES[dtype], stored // np.dtype(TYPES[dtype]).itemsize, offset + 6 + len(name.encode()))
    if dtype == 3: array = (array.astype("<u4") << 16).view("<f4")
    if flags & 22 or dtype == 0: return Tensor(name, layer, ctx, execution, None, None, array, bool(flags & 6))
    array = array.reshape(ne[::-1])
    if rows == 0: return Tensor(name, layer, ctx, execution, None, None, array, False)
    tokens, array = np.arange(first, first + count), np.moveaxis(array, 3 - dim, 0)  # tokens first
    while array.ndim > 1 + dim and array.shape[1] == 1: array = array[:, 0]
    return Tensor(name, layer, ctx, execution, tokens, np.array([position.get(t, -1) for t in tokens]), array, False)

if __name__ == "__main__":
    for t in tensors(sys.argv[1]): print(t.name, t.layer, t.tokens, t.positions, t.array.shape, t.array.dtype)

"""Reads what llamatap records, on NumPy alone: python reader.py RUN/activations.stream, or, while it is recorded with
--tap-sink unix:PATH, python reader.py unix:PATH (start this first). tensors(source) yields Tensor tuples in stream order.
With codec none arrays lie in the mapped file or the frame that came, and nothing is copied (bf16 is widened). unpack.py reads the others."""
import collections, mmap, os, socket, struct, sys
import numpy as np; from unpack import unpack  # next to this file
# layer is -1 where there is none. tokens and positions are arrays, one entry per row of array, or None where its rows are no tokens;
# a block of a large tensor, or a sample of one (piece is true), is flat.
Tensor = collections.namedtuple("Tensor", "name layer ctx execution tokens positions array piece")
TYPES = {0: "u1", 1: "<f4", 2: "<f2", 3: "<u2", 4: "<f8", 5: "i1", 6: "<i2", 7: "<i4", 8: "<i8"}

class Fields:
    """Takes a record's payload apart."""
    def __init__(self, data): self.data, self.at = data, 0
    def bytes(self, n): self.at += n; return self.data[self.at - n:self.at]
    def uint(self): b, = self.bytes(1); return b if b < 128 else b - 128 + (self.uint() << 7)
    def int(self): n = self.uint(); return n >> 1 ^ -(n & 1)
    def string(self): return self.bytes(self.uint()).decode()

def frames(source):
    """Yields a kind and bytes: B a stream begins, S bytes of the stream, X bytes of its index."""
    if source.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(source[5:]); server.listen(1); link = server.accept()[0].makefile("rb"); os.unlink(source[5:])
        while len(head := link.read(5)) == 5 and head[:1] != b"E": yield head[:1], link.read(int.from_bytes(head[1:], "little"))
    else:
        with open(source, "rb") as f: yield b"S", mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        yield b"X", open(source + ".idx", "rb").read()

def tensors(source):
    nodes, position, index, at, stream, base = [], {}, b"", 64, b"", 0
    for kind, data in frames(source):
        if kind == b"B": nodes, position, index, at, stream, base = [], {}, b"", 64, b"", 0
        if kind == b"S": base, stream = base + len(stream), data
        if kind == b"X": index, at = index[at:] + data if index else data, 0 if index else 64
        while kind == b"X" and at + 12 + (size := int.from_bytes(index[at + 4:at + 7], "little")) <= len(index):
            f, what, at = Fields(index[at + 12:at + 12 + size]), index[at + 7], at + 12 + size
            if what == 1:
                f.uint(); name = f.string(); f.string(); f.string(); f.uint()
                nodes.append((name, f.int(), *f.bytes(3)[1:], f.uint()))  # layer, row kind, row dimension, context
            elif what == 3:
                f.uint(); f.uint(); f.uint(); f.bytes(1); f.int(); f.int(); first = f.int()
                for row in range(f.uint()):
                    f.bytes(2); token = first + row + f.int(); f.int(); position[token] = f.int()
                    for _ in range(f.uint()): f.int()
            elif what == 2: yield packet(f, stream, base, nodes, position)
def packet(f, stream, base, nodes, position):
    flags = f.uint(); name, layer, rows, dim, ctx = nodes[f.uint()]
    at, stored = f.uint() + 6 + len(name.encode()) - base, f.uint(); _, dtype, codec, _ = struct.unpack("<IBBB", f.bytes(7))
    f.uint(); raw = f.uint(); f.uint(); execution = f.uint(); f.int(); ne, first, count = [f.uint() for _ in range(4)], f.int(), f.uint()
    data, at = (stream, at) if codec == 0 else (unpack(codec, stream[at:at + stored], raw), 0)
    array = np.frombuffer(data, TYPES[dtype], raw // np.dtype(TYPES[dtype]).itemsize, at)
    if dtype == 3: array = (array.astype("<u4") << 16).view("<f4")
    if flags & 22 or dtype == 0: return Tensor(name, layer, ctx, execution, None, None, array, bool(flags & 6))
    if rows == 0: return Tensor(name, layer, ctx, execution, None, None, array.reshape(ne[::-1]), False)
    tokens, array = np.arange(first, first + count), np.moveaxis(array.reshape(ne[::-1]), 3 - dim, 0)  # tokens first
    while array.ndim > 1 + dim and array.shape[1] == 1: array = array[:, 0]
    return Tensor(name, layer, ctx, execution, tokens, np.array([position.get(t, -1) for t in tokens]), array, False)
if __name__ == "__main__":
    try: any(print(t.name, t.layer, t.tokens, t.positions, t.array.shape, t.array.dtype) for t in tensors(sys.argv[1]))
    except (IndexError, OSError, ValueError) as e: sys.exit(f"{e}: give RUN/activations.stream, whose index is next to it, or unix:PATH")

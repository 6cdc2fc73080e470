"""Unpacks payloads of every codec, as docs/STREAM_FORMAT.md describes them: on NumPy alone, slowly, none, lz4, q and q-fse. If pyarrow is
installed it unpacks lz4, which is faster; zstd and zstd-shuffle need it, or zstandard."""
import numpy as np

class Fields:
    def __init__(self, data): self.data, self.at = data, 0
    def bytes(self, n): self.at += n; return self.data[self.at - n:self.at]
    def uint(self): b, = self.bytes(1); return b if b < 128 else b - 128 + (self.uint() << 7)

def unpack(codec, data, size):
    """Returns the elements of a payload: 1 lz4, 2 zstd, 3 q, 4 q-fse, 5 zstd-shuffle. size is how many bytes they are."""
    if codec == 2: return zstd(data, size)
    if codec == 5: return shuffled(data, size)
    if codec in (3, 4) and data[:1] == b"\2": return quantised(data, size)
    return lz4(data, size)  # q packs what is no F32 as lz4 does

def lz4(data, size):
    try: import pyarrow; return pyarrow.decompress(data, size, codec="lz4").to_pybytes()
    except ImportError: pass
    out, flags, at = bytearray(), data[4], 7 + (data[4] & 8)  # magic, flags, block size, content size, header checksum
    while (head := int.from_bytes(data[at:at + 4], "little")) != 0:
        block = data[at + 4:at + 4 + (head & 0x7fffffff)]; at += 4 + len(block) + (flags >> 2 & 4)
        if head >> 31: out += block; continue
        i = 0
        while i < len(block):
            token, i = block[i], i + 1
            n, i = length(block, token >> 4, i); out += block[i:i + n]; i += n
            if i >= len(block): break
            back = block[i] | block[i + 1] << 8; n, i = length(block, token & 15, i + 2)
            out += (bytes(out[-back:]) * ((n + 4) // back + 1))[:n + 4]
    return bytes(out)

def length(block, n, i):
    if n == 15:
        while True:
            n, i = n + block[i], i + 1
            if block[i - 1] != 255: break
    return n, i

def zstd(data, size):
    try: import zstandard; return zstandard.ZstdDecompressor().decompress(data, size)
    except ImportError: import pyarrow; return pyarrow.decompress(data, size, codec="zstd").to_pybytes()

def shuffled(data, size):
    width, at, planes = data[0], 1, []
    for i in range(width):
        n = int.from_bytes(data[at:at + 4], "little"); at += 4
        planes.append(zstd(data[at:at + n], size // width + (size % width if i == width - 1 else 0))); at += n
    whole = b"".join(p[:size // width] for p in planes)
    return np.frombuffer(whole, "u1").reshape(width, -1).T.tobytes() + planes[-1][size // width:]

def quantised(data, size):
    f = Fields(data); version, metric = f.bytes(2); f.bytes(12)
    assert version == 2, f"q version {version}: this reads version 2"
    n, rows, symbols = f.uint(), f.uint(), np.zeros(0, "i1")
    if metric & 128:
        total, parts = f.uint(), b""
        while len(parts) < total:
            block, coded = min(total - len(parts), 65536), f.uint()
            parts += finite_state(f.bytes(coded), block) if coded else f.bytes(block)
        symbols = np.frombuffer(parts, "i1")
    out, used = np.zeros((rows, n), "<f4"), 0
    for row in out:
        kind = f.bytes(1)[0]
        if kind == 1: row.view("<u4")[:] = int.from_bytes(f.bytes(4), "little")
        elif kind == 2: row[:] = np.frombuffer(f.bytes(4 * n), "<f4")
        elif kind >= 3:
            step = np.frombuffer(b"\0\0" + f.bytes(2), "<f4")[0]
            if kind >= 32:
                low = kind & 31
                multiples = bits(f.bytes((n * low + 7) // 8), n, low) | symbols[used:used + n].astype("<i8") << low; used += n
            else:
                groups = []
                for first in range(0, n, 256):
                    k, width = min(256, n - first), f.bytes(1)[0]; q = bits(f.bytes((k * width + 7) // 8), k, width)
                    groups.append(q - ((q >> max(width - 1, 0) & 1) << width))
                multiples = np.concatenate(groups)
            row[:] = multiples.astype("<f4") * step
            if kind == 4 or kind >= 64:
                at = 0
                for _ in range(f.uint()): at += f.uint(); row.view("<u4")[at] = int.from_bytes(f.bytes(4), "little")
    return out.tobytes()

def bits(data, n, width):
    """n unsigned numbers of width bits, the first in the lowest bits."""
    if width == 0: return np.zeros(n, "<i8")
    each = np.unpackbits(np.frombuffer(data, "u1"), bitorder="little")[:n * width].reshape(n, width).astype("<i8")
    return each @ (1 << np.arange(width, dtype="<i8"))

def finite_state(data, n):
    """A block of n symbols of Finite State Entropy: a table of counts as zstd writes it, and a bit stream read from its end by two states."""
    head, at = int.from_bytes(data[:600], "little"), 4
    log = (head & 15) + 5; left, limit, width, counts = (1 << log) + 1, 1 << log, log + 1, []
    while left > 1:
        if counts and counts[-1] == 0:
            while True:
                zeros = head >> at & 3; at += 2; counts += [0] * zeros
                if zeros < 3: break
        value, most = head >> at & (2 * limit - 1), 2 * limit - 1 - left
        if value & limit - 1 < most: value &= limit - 1; at += width - 1
        else: value -= most if value >= limit else 0; at += width
        counts.append(value - 1); left -= abs(value - 1)
        while left < limit: width -= 1; limit >>= 1
    size = 1 << log; symbol, high, place = [0] * size, size - 1, 0
    for s, c in enumerate(counts):
        if c == -1: symbol[high] = s; high -= 1
    for s, c in enumerate(counts):
        for _ in range(max(c, 0)):
            symbol[place] = s
            while True:
                place = place + (size >> 1) + (size >> 3) + 3 & size - 1
                if place <= high: break
    following, table = [abs(c) for c in counts], []
    for s in symbol:
        state = following[s]; following[s] += 1
        take = log + 1 - state.bit_length(); table.append((s, take, (state << take) - size))
    body = data[(at + 7) // 8:]; stream = int.from_bytes(body, "little"); end = stream.bit_length() - 1
    states, out = [], bytearray()
    for _ in range(2): end -= log; states.append(stream >> end & size - 1)
    for i in range(n):
        s, take, base = table[states[i & 1]]; out.append(s)
        if i < n - 2: end -= take; states[i & 1] = base + (stream >> end & (1 << take) - 1)
    return bytes(out)

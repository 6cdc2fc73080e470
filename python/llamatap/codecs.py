"""Payloads of every codec, as STREAM_FORMAT.md describes them.

On NumPy alone, slowly: none, lz4, q and q-fse. With pyarrow or lz4, lz4 is faster. zstd and zstd-shuffle need one of
zstandard, pyarrow or Python 3.14.
"""

from __future__ import annotations

import numpy as np

__all__ = ["Fields", "unpack"]

_LZ4, _ZSTD, _Q, _QFSE, _SHUFFLE = 1, 2, 3, 4, 5


class Fields:
    """Takes a record apart. Raises IndexError where it ends too early."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def bytes(self, n: int) -> bytes:
        self.at += n
        if self.at > len(self.data):
            raise IndexError(f"a record of {len(self.data)} bytes ends {self.at - len(self.data)} too early")
        return self.data[self.at - n:self.at]

    def uint(self) -> int:
        n = shift = 0
        while True:
            (b,) = self.bytes(1)
            n |= (b & 127) << shift
            if b < 128:
                return n
            shift += 7

    def int(self) -> int:
        n = self.uint()
        return n >> 1 ^ -(n & 1)

    def string(self) -> str:
        return self.bytes(self.uint()).decode()


def unpack(codec: int, data: bytes, size: int) -> bytes:
    """Returns the size bytes that a payload holds.

    codec is that of the index: 1 lz4, 2 zstd, 3 q, 4 q-fse, 5 zstd-shuffle. Raises ImportError, which names the
    modules, where a codec needs one.
    """
    if codec == _ZSTD:
        return _zstd(data, size)
    if codec == _SHUFFLE:
        return _shuffled(data, size)
    if codec in (_Q, _QFSE) and data[:1] == b"\2":
        return _quantised(data)
    if codec in (_LZ4, _Q, _QFSE):  # q packs what is not F32 as lz4 does
        return _lz4(data, size)
    raise ValueError(f"codec {codec} is not known: a newer llamatap wrote this")


def _lz4(data: bytes, size: int) -> bytes:
    try:
        import pyarrow

        return bytes(pyarrow.decompress(data, size, codec="lz4"))
    except ImportError:
        pass
    try:
        import lz4.frame

        return bytes(lz4.frame.decompress(data))
    except ImportError:
        return _lz4_frame(data)


def _lz4_frame(data: bytes) -> bytes:
    flags = data[4]
    at = 7 + (flags & 8)  # magic, flags, block size, content size, header checksum
    out = bytearray()
    while (head := int.from_bytes(data[at:at + 4], "little")) != 0:
        block = data[at + 4:at + 4 + (head & 0x7FFFFFFF)]
        at += 4 + len(block) + (flags >> 2 & 4)
        if head >> 31:
            out += block
        else:
            _lz4_block(block, out)
    return bytes(out)


def _lz4_block(block: bytes, out: bytearray) -> None:
    i = 0
    while i < len(block):
        token = block[i]
        n, i = _length(block, token >> 4, i + 1)
        out += block[i:i + n]
        i += n
        if i >= len(block):
            return
        back = block[i] | block[i + 1] << 8
        n, i = _length(block, token & 15, i + 2)
        out += (bytes(out[-back:]) * ((n + 4) // back + 1))[:n + 4]


def _length(block: bytes, n: int, i: int) -> tuple[int, int]:
    if n == 15:
        while True:
            n, i = n + block[i], i + 1
            if block[i - 1] != 255:
                break
    return n, i


def _zstd(data: bytes, size: int) -> bytes:
    try:
        import zstandard

        return bytes(zstandard.ZstdDecompressor().decompress(data, size))
    except ImportError:
        pass
    try:
        import pyarrow

        return bytes(pyarrow.decompress(data, size, codec="zstd"))
    except ImportError:
        pass
    try:
        from compression import zstd

        return bytes(zstd.decompress(data))
    except ImportError:
        raise ImportError("the codec zstd needs a module: pip install zstandard (or pyarrow, or Python 3.14); or "
                          "record with --tap-codec lz4") from None


def _shuffled(data: bytes, size: int) -> bytes:
    width, at, planes = data[0], 1, []
    for i in range(width):
        n = int.from_bytes(data[at:at + 4], "little")
        last = size % width if i == width - 1 else 0
        planes.append(_zstd(data[at + 4:at + 4 + n], size // width + last))
        at += 4 + n
    whole = b"".join(p[:size // width] for p in planes)
    return np.frombuffer(whole, "u1").reshape(width, -1).T.tobytes() + planes[-1][size // width:]


def _quantised(data: bytes) -> bytes:
    f = Fields(data)
    _, metric = f.bytes(2)
    f.bytes(12)
    n, rows = f.uint(), f.uint()
    symbols = _symbols(f) if metric & 128 else np.zeros(0, "i1")
    out, used = np.zeros((rows, n), "<f4"), 0
    for row in out:
        kind = f.bytes(1)[0]
        if kind == 1:
            row.view("<u4")[:] = int.from_bytes(f.bytes(4), "little")
        elif kind == 2:
            row[:] = np.frombuffer(f.bytes(4 * n), "<f4")
        elif kind >= 3:
            step = np.frombuffer(b"\0\0" + f.bytes(2), "<f4")[0]
            if kind >= 32:
                low = kind & 31
                high = symbols[used:used + n].astype("<i8") << low
                row[:] = (_bits(f.bytes((n * low + 7) // 8), n, low) | high).astype("<f4") * step
                used += n
            else:
                row[:] = _multiples(f, n).astype("<f4") * step
            if kind == 4 or kind >= 64:
                at = 0
                for _ in range(f.uint()):
                    at += f.uint()
                    row.view("<u4")[at] = int.from_bytes(f.bytes(4), "little")
    return out.tobytes()


def _symbols(f: Fields) -> np.ndarray:
    total, parts = f.uint(), bytearray()
    while len(parts) < total:
        block, coded = min(total - len(parts), 65536), f.uint()
        parts += _finite_state(f.bytes(coded), block) if coded else f.bytes(block)
    return np.frombuffer(bytes(parts), "i1")


def _multiples(f: Fields, n: int) -> np.ndarray:
    groups = [np.zeros(0, "<i8")]
    for first in range(0, n, 256):
        k, width = min(256, n - first), f.bytes(1)[0]
        q = _bits(f.bytes((k * width + 7) // 8), k, width)
        groups.append(q - ((q >> max(width - 1, 0) & 1) << width))
    return np.concatenate(groups)


def _bits(data: bytes, n: int, width: int) -> np.ndarray:
    """n unsigned numbers of width bits, the first in the lowest bits."""
    if width == 0:
        return np.zeros(n, "<i8")
    each = np.unpackbits(np.frombuffer(data, "u1"), bitorder="little")[:n * width].reshape(n, width).astype("<i8")
    return np.asarray(each @ (1 << np.arange(width, dtype="<i8")))


def _finite_state(data: bytes, n: int) -> bytes:
    """A block of n symbols of Finite State Entropy: a table of counts as in zstd, and a bit stream that two states read
    from its end."""
    counts, log, at = _counts(data)
    table = _table(counts, log)
    size = 1 << log
    body = data[(at + 7) // 8:]
    stream = int.from_bytes(body, "little")
    end = stream.bit_length() - 1
    states, out = [], bytearray()
    for _ in range(2):
        end -= log
        states.append(stream >> end & size - 1)
    for i in range(n):
        symbol, take, base = table[states[i & 1]]
        out.append(symbol)
        if i < n - 2:
            end -= take
            states[i & 1] = base + (stream >> end & (1 << take) - 1)
    return bytes(out)


def _counts(data: bytes) -> tuple[list[int], int, int]:
    """The normalised counts of symbols, the logarithm of their sum, and how many bits that took."""
    head, at = int.from_bytes(data[:600], "little"), 4
    log = (head & 15) + 5
    left, limit, width = (1 << log) + 1, 1 << log, log + 1
    counts: list[int] = []
    while left > 1:
        if counts and counts[-1] == 0:
            while True:
                zeros = head >> at & 3
                at += 2
                counts += [0] * zeros
                if zeros < 3:
                    break
        value, most = head >> at & (2 * limit - 1), 2 * limit - 1 - left
        if value & limit - 1 < most:
            value &= limit - 1
            at += width - 1
        else:
            value -= most if value >= limit else 0
            at += width
        counts.append(value - 1)
        left -= abs(value - 1)
        while left < limit:
            width -= 1
            limit >>= 1
    return counts, log, at


def _table(counts: list[int], log: int) -> list[tuple[int, int, int]]:
    """For each state its symbol, how many bits to take, and what to add to them for the next state."""
    size = 1 << log
    symbol, high, place = [0] * size, size - 1, 0
    for s, c in enumerate(counts):
        if c == -1:
            symbol[high] = s
            high -= 1
    for s, c in enumerate(counts):
        for _ in range(max(c, 0)):
            symbol[place] = s
            while True:
                place = place + (size >> 1) + (size >> 3) + 3 & size - 1
                if place <= high:
                    break
    following, table = [abs(c) for c in counts], []
    for s in symbol:
        state = following[s]
        following[s] += 1
        take = log + 1 - state.bit_length()
        table.append((s, take, (state << take) - size))
    return table

"""Payloads of every codec, as STREAM_FORMAT.md describes them.

On NumPy alone, slowly: none, lz4, q and q-fse. With pyarrow or lz4, lz4 is faster. zstd and zstd-shuffle need one of
zstandard, pyarrow or Python 3.14.
"""

from __future__ import annotations

import numpy as np

__all__ = ["Fields", "unpack"]

_LZ4, _ZSTD, _Q, _QFSE, _SHUFFLE = 1, 2, 3, 4, 5
_WIDEST = 24  # bits of a value of q


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
            if n >> 64:
                raise ValueError("a number of more than 64 bits")
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
        return _quantised(data, size)
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


def _quantised(data: bytes, size: int) -> bytes:
    """Raises ValueError or IndexError on what no encoder wrote."""
    f = Fields(data)
    _, metric = f.bytes(2)
    bound = np.frombuffer(f.bytes(12), "<f4")[0] or np.float32(1e-3)
    if metric & 127 > 1 or not np.float32(1e-6) <= bound <= np.float32(0.25):
        raise ValueError(f"metric {metric & 127} with the bound {bound}")
    n, rows = f.uint(), f.uint()
    if n == 0 or 4 * n * rows != size or rows > len(data) - f.at:
        raise ValueError(f"{rows} rows of {n} values are not {size} bytes")
    entropy = bool(metric & 128)
    symbols = _symbols(f, size // 4) if entropy else np.zeros(0, "i1")
    out, used = np.zeros((rows, n), "<f4"), 0
    for row in out:
        kind = f.bytes(1)[0]
        low = kind & 31
        if kind == 1:
            row.view("<u4")[:] = int.from_bytes(f.bytes(4), "little")
        elif kind == 2:
            row[:] = np.frombuffer(f.bytes(4 * n), "<f4")
        elif kind == 0:
            continue
        elif entropy and 32 <= kind < 96 and low <= _WIDEST and used + n <= len(symbols):
            row[:] = _step(f) * (_bits(f, n, low) | symbols[used:used + n].astype("<i8") << low).astype("<f4")
            used += n
        elif not entropy and kind in (3, 4):
            row[:] = _step(f) * _multiples(f, n).astype("<f4")
        else:
            raise ValueError(f"a row of kind {kind}")
        if kind == 4 or kind >= 64:
            _exceptions(f, row)
    if f.at != len(data) or used != len(symbols):
        raise ValueError("bytes behind the last row")
    return out.tobytes()


def _step(f: Fields) -> np.float32:
    return np.float32(np.frombuffer(b"\0\0" + f.bytes(2), "<f4")[0])


def _exceptions(f: Fields, row: np.ndarray) -> None:
    at = 0
    for _ in range(f.uint()):
        at += f.uint()
        row.view("<u4")[at] = int.from_bytes(f.bytes(4), "little")


def _symbols(f: Fields, limit: int) -> np.ndarray:
    total, parts = f.uint(), bytearray()
    if total > limit:
        raise ValueError(f"{total} symbols of {limit} values")
    while len(parts) < total:
        block, coded = min(total - len(parts), 65536), f.uint()
        parts += _finite_state(f.bytes(coded), block) if coded else f.bytes(block)
    return np.frombuffer(bytes(parts), "i1")


def _multiples(f: Fields, n: int) -> np.ndarray:
    groups = [np.zeros(0, "<i8")]
    for first in range(0, n, 256):
        k, width = min(256, n - first), f.bytes(1)[0]
        q = _bits(f, k, width)
        groups.append(q - ((q >> max(width - 1, 0) & 1) << width))
    return np.concatenate(groups)


def _bits(f: Fields, n: int, width: int) -> np.ndarray:
    """n unsigned numbers of width bits, the first in the lowest bits."""
    if width > _WIDEST:
        raise ValueError(f"values of {width} bits")
    if width == 0:
        return np.zeros(n, "<i8")
    data = np.frombuffer(f.bytes((n * width + 7) // 8), "u1")
    each = np.unpackbits(data, bitorder="little")[:n * width].reshape(n, width).astype("<i8")
    return np.asarray(each @ (1 << np.arange(width, dtype="<i8")))


def _finite_state(data: bytes, n: int) -> bytes:
    """A block of n symbols of Finite State Entropy: a table of counts as in zstd, and a bit stream that two states read
    from its end."""
    counts, log, at = _counts(data)
    table = _table(counts, log)
    size = 1 << log
    stream = int.from_bytes(data[(at + 7) // 8:], "little")
    if len(data) <= (at + 7) // 8 or data[-1] == 0:
        raise ValueError("a stream of bits without an end")
    end = stream.bit_length() - 1
    states, out = [], bytearray()
    for _ in range(2):
        end -= log
        states.append(stream >> end & size - 1)
    while len(out) <= n:
        symbol, take, base = table[states[0]]
        out.append(symbol)
        if end == 0 and take > 0:
            out.append(table[states[1]][0])
            break
        end -= take
        states = [states[1], base + (stream >> end & (1 << take) - 1)]
    if len(out) != n:
        raise ValueError(f"{n} symbols do not end with their bits")
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
        if left < 1 or len(counts) > 256 or value > 1 << 15:
            raise ValueError("a table of counts that no encoder writes")
        while left < limit:
            width -= 1
            limit >>= 1
    if len(counts) < 2 or log > 15 or at > 8 * len(data):
        raise ValueError("a table of counts that no encoder writes")
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

"""The stream of captured tensors and its index, from a file or while they are written.

The formats are those of STREAM_FORMAT.md and INDEX_FORMAT.md. With the codec ``none`` arrays lie in the mapped file, or
in the frame that came, and nothing is copied (bfloat16 is widened).
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .codecs import Fields, unpack

__all__ = ["Tensor", "read", "records", "repair"]

_TYPES = {0: "u1", 1: "<f4", 2: "<f2", 3: "<u2", 4: "<f8", 5: "i1", 6: "<i2", 7: "<i4", 8: "<i8"}
_BF16 = 3
_HEADER = 64  # bytes of the index before its first record
_NODE, _PACKET, _EXECUTION = 1, 2, 3
_BLOCK, _SAMPLE, _REBUILT = 2, 4, 16  # flags of a packet
_LOSSES = 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of one execution of the graph, or a sample of one."""

    name: str
    layer: int | None
    ctx: int
    execution: int
    #: ``token_index`` of each row of ``array``; None where its rows are not tokens.
    tokens: np.ndarray | None
    #: Position of each row in its sequence, -1 where unknown; None where ``tokens`` is.
    positions: np.ndarray | None
    #: Rows first, then the tensor's other dimensions from the slowest to the fastest. Flat for a sample, for the bytes
    #: of a block-quantised tensor, and where an index that was made anew lacks the shape.
    array: np.ndarray
    #: Shape of the whole tensor, slowest dimension first, if this is a sample of its elements; else None.
    sample_of: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    layer: int | None
    rows_are_tokens: bool
    row_dimension: int
    ctx: int


def read(source: str | os.PathLike[str], want: Callable[[str, int | None], bool] | None = None) -> Iterator[Tensor]:
    """Yields the tensors of a stream, in its order.

    source is ``RUN/activations.stream``, whose index lies beside it, or ``unix:PATH``: then this listens until
    ``llamatap --tap-sink unix:PATH`` connects, and yields while the run goes on. want(name, layer) selects; what it
    refuses is not unpacked.

    Raises ValueError for what is not a stream or is truncated, OSError for a file that cannot be read.
    """
    try:
        yield from _Reader(want).tensors(os.fspath(source))
    except EOFError as e:
        raise ValueError(f"{source} {e}: {repair(Path(source).parent)}") from e
    except (IndexError, struct.error) as e:
        raise ValueError(f"{source}: {e}: give RUN/activations.stream, whose index is next to it, or unix:PATH") from e


def repair(part: Path) -> str:
    """Returns the remedy for a damaged file of a run directory or of a segment."""
    run = part.parent if part.name.startswith("seg-") else part
    return f"repair it with: llamatap verify --repair {run}"


def records(index: bytes, at: int = _HEADER) -> Iterator[tuple[int, Fields, int]]:
    """Yields type, payload and end of the records of an index from offset at on, complete ones only."""
    while at + 12 <= len(index):
        end = at + 12 + int.from_bytes(index[at + 4:at + 7], "little")
        if end > len(index):
            return  # the rest comes, or was never written
        yield index[at + 7], Fields(index[at + 12:end]), end
        at = end


def _frames(source: str) -> Iterator[tuple[bytes, Any]]:
    """Yields a kind and bytes: B a stream begins, S bytes of the stream, X bytes of its index."""
    if not source.startswith("unix:"):
        with open(source, "rb") as stream, open(source + ".idx", "rb") as f:
            index = f.read()  # before the size of the stream, which may grow: the index then describes no missing bytes
            size = os.fstat(stream.fileno()).st_size
            yield b"S", mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ) if size else b""
        yield b"X", index
        return
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(source[5:])
        server.listen(1)
        consumer, _ = server.accept()
        os.unlink(source[5:])
    with consumer, consumer.makefile("rb") as link:
        while len(head := link.read(5)) == 5 and head[:1] != b"E":
            yield head[:1], link.read(int.from_bytes(head[1:], "little"))


class _Reader:
    def __init__(self, want: Callable[[str, int | None], bool] | None) -> None:
        self.want = want
        self.begin()

    def begin(self) -> None:
        self.nodes: list[_Node] = []
        self.position: dict[int, int] = {}
        self.index = b""
        self.at = _HEADER
        self.stream: Any = b""
        self.base = 0  # offset of the bytes in self.stream
        self.blocks: dict[tuple[str, int], list[np.ndarray]] = {}  # of tensors in several packets

    def tensors(self, source: str) -> Iterator[Tensor]:
        for kind, data in _frames(source):
            if kind == b"B":
                self.begin()
            elif kind == b"S":
                self.base, self.stream = self.base + len(self.stream), data
            elif kind == b"X":
                if not self.index and len(data) < _HEADER:
                    raise IndexError(f"an index of {len(data)} bytes")
                self.at, self.index = (0, self.index[self.at:] + data) if self.index else (_HEADER, data)
                yield from self.packets()

    def packets(self) -> Iterator[Tensor]:
        for kind, f, self.at in records(self.index, self.at):
            if kind == _NODE:
                self.nodes.append(_node(f))
            elif kind == _EXECUTION:
                self.execution(f)
            elif kind == _PACKET:
                tensor = self.packet(f)
                if tensor is not None:
                    yield tensor

    def execution(self, f: Fields) -> None:
        f.uint(), f.uint(), f.uint(), f.bytes(1), f.int(), f.int()
        first = f.int()
        for row in range(f.uint()):
            f.bytes(2)
            token = first + row + f.int()
            f.int()
            self.position[token] = f.int()
            for _ in range(f.uint()):
                f.int()

    def packet(self, f: Fields) -> Tensor | None:
        flags = f.uint()
        node = self.nodes[f.uint()]
        at = f.uint() + 6 + len(node.name.encode()) - self.base
        stored = f.uint()
        _, dtype, codec, _ = struct.unpack("<IBBB", f.bytes(7))
        f.uint()
        raw = f.uint()
        f.uint()
        execution = f.uint()
        f.int()
        shape = tuple(f.uint() for _ in range(4))[::-1]
        first, count = f.int(), f.uint()
        f.int(), f.int()
        if self.want is not None and not self.want(node.name, node.layer):
            return None
        if at + stored > len(self.stream):
            raise EOFError(f"is truncated: it ends after {len(self.stream)} bytes, in or before {node.name}")
        data, at = (self.stream, at) if codec == 0 else (unpack(codec, self.stream[at:at + stored], raw), 0)
        array = np.frombuffer(data, _TYPES[dtype], raw // np.dtype(_TYPES[dtype]).itemsize, at)
        if dtype == _BF16:
            array = (array.astype("<u4") << 16).view("<f4")
        if flags & _LOSSES:
            f.uint(), f.uint()
        about = (node.name, node.layer, node.ctx, execution)
        number = of = 0
        if flags & _BLOCK:
            number, of, _ = f.uint(), f.uint(), f.uint()
        if flags & _SAMPLE:
            return Tensor(*about, None, None, array, shape)
        if flags & _REBUILT:
            return Tensor(*about, None, None, array)
        if of > 1:
            blocks = self.blocks.setdefault((node.name, execution), [])
            blocks.append(array)
            if number + 1 < of or len(blocks) < of:
                return None  # the others follow; of an interrupted run, or a loss, they do not
            array = np.concatenate(self.blocks.pop((node.name, execution)))
        if dtype == 0:  # quantised blocks
            return Tensor(*about, None, None, array)
        if not node.rows_are_tokens:
            return Tensor(*about, None, None, array.reshape(shape))
        return Tensor(*about, *self.rows(first, count), _rows_first(array.reshape(shape), node.row_dimension))

    def rows(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        tokens = np.arange(first, first + count)
        return tokens, np.array([self.position.get(t, -1) for t in tokens.tolist()], np.int64)


def _node(f: Fields) -> _Node:
    f.uint()
    name = f.string()
    f.string(), f.string(), f.uint()
    layer = f.int()
    _, rows, dimension = f.bytes(3)
    return _Node(name, None if layer < 0 else layer, rows != 0, dimension, f.uint())


def _rows_first(array: np.ndarray, dimension: int) -> np.ndarray:
    array = np.moveaxis(array, 3 - dimension, 0)
    while array.ndim > 1 + dimension and array.shape[1] == 1:
        array = array[:, 0]
    return array

"""A subscriber to KV events as vLLM publishes them: vLLM's structs, its hash, pyzmq and msgspec.

It answers each line of its input, a JSON list of token ids, with how many of its first blocks the server holds, as far
as the events say.
"""
import hashlib
import json
import sys
from typing import Any, Optional, Union

import cbor2
import msgspec
import zmq

events, replay, topic, form, seed, size = sys.argv[1:]
size = int(size)
array = {"array_like": form == "array", "omit_defaults": True, "gc": False, "tag": True}


class BlockStored(msgspec.Struct, **array):
    block_hashes: list[Union[bytes, int]]
    parent_block_hash: Optional[Union[bytes, int]]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]
    extra_keys: Optional[list[Any]] = None
    group_idx: Optional[int] = None


class BlockRemoved(msgspec.Struct, **array):
    block_hashes: list[Union[bytes, int]]
    medium: Optional[str]
    group_idx: Optional[int] = None


class AllBlocksCleared(msgspec.Struct, **array):
    pass


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
    data_parallel_rank: Optional[int] = None


def sha256_cbor(value):
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def hashes(tokens):
    """The block hashes of a prompt, as events have them."""
    parent, all_of_them = sha256_cbor(seed), []
    for at in range(0, len(tokens) - size + 1, size):
        parent = sha256_cbor((parent, tuple(tokens[at : at + size]), None))
        all_of_them.append(int.from_bytes(parent, "big") & (1 << 64) - 1)
    return all_of_them


held, chains, seen = set(), {}, {"published": 0, "replayed": 0, "cleared": 0, "removed": 0, "shared": 0}


def apply(batch):
    assert batch.ts > 1e9 and batch.data_parallel_rank == 0, batch
    for event in batch.events:
        if isinstance(event, BlockStored):
            assert event.medium == "GPU" and event.block_size == size, event
            assert len(event.token_ids) == size * len(event.block_hashes), event
            parent = event.parent_block_hash
            assert parent is None or parent in held, event
            before = chains[parent] if parent is not None else []
            seen["shared"] += parent is not None
            for i, block in enumerate(event.block_hashes):
                before = before + event.token_ids[i * size : (i + 1) * size]
                assert block not in held and block == hashes(before)[-1], event
                chains[block] = before
                held.add(block)
        elif isinstance(event, BlockRemoved):
            assert event.medium == "GPU" and held.issuperset(event.block_hashes), event
            held.difference_update(event.block_hashes)
            seen["removed"] += len(event.block_hashes)
        else:
            held.clear()
            seen["cleared"] += 1


context = zmq.Context()
subscriber = context.socket(zmq.SUB)
subscriber.connect(events)
subscriber.setsockopt_string(zmq.SUBSCRIBE, topic[:-1])
questions = context.socket(zmq.DEALER)
questions.connect(replay)
decoder = msgspec.msgpack.Decoder(type=KVEventBatch)
last = -1


def ask(stop):
    """Applies past batches, from the one after the last to before one."""
    global last
    questions.send_multipart([b"", (last + 1).to_bytes(8, "big")])
    while True:
        empty, number, payload = questions.recv_multipart()
        assert empty == b""
        if number == (-1).to_bytes(8, "big", signed=True):
            assert payload == b""
            return
        number = int.from_bytes(number, "big")
        if number == last + 1 and (stop is None or number < stop):
            apply(decoder.decode(payload))
            last, seen["replayed"] = number, seen["replayed"] + 1


def follow():
    global last
    while subscriber.poll(0):
        name, number, payload = subscriber.recv_multipart()
        assert name.decode() == topic, name
        number = int.from_bytes(number, "big")
        if number <= last:
            continue
        if number > last + 1:
            ask(number)
        assert number == last + 1, (number, last)
        apply(decoder.decode(payload))
        last, seen["published"] = number, seen["published"] + 1


ask(None)
print("ready", flush=True)
for line in sys.stdin:
    follow()
    if seen["published"] == 0:  # the subscription may have come after the last batch
        ask(None)
    leading = 0
    for block in hashes(json.loads(line)):
        if block not in held:
            break
        leading += 1
    print(json.dumps({"leading": leading, "held": len(held), **seen}), flush=True)

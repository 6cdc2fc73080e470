package gguf

import (
	"encoding/binary"
)

// raw writes GGUF bytes by hand, right or wrong, without the code under test.
type raw []byte

func (r raw) u8(n uint8) raw      { return append(r, n) }
func (r raw) u32(n uint32) raw    { return binary.LittleEndian.AppendUint32(r, n) }
func (r raw) u64(n uint64) raw    { return binary.LittleEndian.AppendUint64(r, n) }
func (r raw) text(s string) raw   { return append(r.u64(uint64(len(s))), s...) }
func (r raw) zeros(n int) raw     { return append(r, make([]byte, n)...) }
func (r raw) padTo(align int) raw { return r.zeros((align - len(r)%align) % align) }
func (r raw) tensor(name string, typ uint32, offset uint64, shape ...uint64) raw {
	r = r.text(name).u32(uint32(len(shape)))
	for _, n := range shape {
		r = r.u64(n)
	}
	return r.u32(typ).u64(offset)
}

func rawHead(version uint32, tensors, keys uint64) raw {
	return raw("GGUF").u32(version).u64(tensors).u64(keys)
}

// rawSmall is a valid file: three keys, two tensors of 64 and 68 bytes.
func rawSmall() raw {
	r := rawHead(3, 2, 3)
	r = r.text("general.architecture").u32(8).text("llama")
	r = r.text("llama.block_count").u32(4).u32(1)
	r = r.text("tokenizer.ggml.tokens").u32(9).u32(8).u64(3).text("a").text("\xff").text("")
	r = r.tensor("a", 0, 0, 16)
	r = r.tensor("b", 8, 64, 32, 2)
	return r.padTo(32).zeros(64 + 68)
}

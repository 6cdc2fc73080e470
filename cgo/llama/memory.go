//go:build llama

package llama

// #include "bridge.h"
import "C"

// Memory is the KV cache, or recurrent state, of a context. It belongs to the context.
type Memory struct{ c C.llama_memory_t }

// Memory is the context's memory.
func (x *Context) Memory() Memory { return Memory{c: C.llama_get_memory(x.c)} }

// Clear forgets everything; data overwrites the buffers with zeros as well.
func (m Memory) Clear(data bool) { C.llama_memory_clear(m.c, C.bool(data)) }

// Remove forgets positions from ≤ p < to of a sequence. false: this kind of memory cannot forget a part.
func (m Memory) Remove(seq Seq, from, to Pos) bool {
	_, stop := collectErrors()
	defer stop()
	done := bool(C.llama_memory_seq_rm(m.c, C.llama_seq_id(seq), C.llama_pos(from), C.llama_pos(to)))
	if !done {
		dropErrors() // the result says it
	}
	return done
}

// Copy makes positions from ≤ p < to of one sequence part of another.
func (m Memory) Copy(src, dst Seq, from, to Pos) {
	C.llama_memory_seq_cp(m.c, C.llama_seq_id(src), C.llama_seq_id(dst), C.llama_pos(from), C.llama_pos(to))
}

// Keep forgets every sequence but one; without ContextParams.Unified, only of those in the same part of the buffer.
func (m Memory) Keep(seq Seq) { C.llama_memory_seq_keep(m.c, C.llama_seq_id(seq)) }

// Shift adds delta to positions from ≤ p < to of a sequence; CanShift must hold.
func (m Memory) Shift(seq Seq, from, to, delta Pos) {
	C.llama_memory_seq_add(m.c, C.llama_seq_id(seq), C.llama_pos(from), C.llama_pos(to), C.llama_pos(delta))
}

// Divide divides positions from ≤ p < to of a sequence by d, which is above 1; CanShift must hold.
func (m Memory) Divide(seq Seq, from, to Pos, d int) {
	C.llama_memory_seq_div(m.c, C.llama_seq_id(seq), C.llama_pos(from), C.llama_pos(to), C.int(d))
}

// Range is the lowest and the highest position of a sequence; -1 and -1 where it is empty.
func (m Memory) Range(seq Seq) (low, high Pos) {
	return Pos(C.llama_memory_seq_pos_min(m.c, C.llama_seq_id(seq))), Pos(C.llama_memory_seq_pos_max(m.c,
		C.llama_seq_id(seq)))
}

// CanShift reports whether positions can be changed.
func (m Memory) CanShift() bool { return bool(C.llama_memory_can_shift(m.c)) }

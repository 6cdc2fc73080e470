package resources

import (
	"cmp"
	"maps"
	"slices"

	"github.com/llamatap/llamatap/resource"
)

// Memory is what ggml's backends allocated. MINIMAL reports large allocations only, and no frees; LiveBytes
// counts all the same.
type Memory struct {
	Allocations, Frees int64
	Live, Peak         int64   // bytes that were allocated and not freed, at the newest event and at most
	Total              *Totals // as the end of the session says it; nil before that

	types map[string]*MemoryType
}

// Totals are of all allocations of a session.
type Totals struct {
	Peak      uint64 `json:"peak_bytes"`
	Allocated uint64 `json:"allocated_bytes"`
	Freed     uint64 `json:"freed_bytes"`
}

// MemoryType is what was allocated and freed of one type of memory, as far as it was reported.
type MemoryType struct {
	Type        string `json:"memory_type"`
	Allocations int64  `json:"allocations"`
	Allocated   int64  `json:"allocated_bytes"`
	Freed       int64  `json:"freed_bytes"`
}

// maxMemoryTypes bounds the different types of memory; there are three.
const maxMemoryTypes = 64

func (m *Memory) findOrAdd(name string) *MemoryType {
	t := m.types[name]
	if t == nil {
		t = &MemoryType{Type: name}
		if len(m.types) < maxMemoryTypes {
			m.types[name] = t
		}
	}
	return t
}

// allocate adds an allocation. A weight lies in a buffer that has an event of its own.
func (m *Memory) allocate(e *resource.Allocation) {
	if e.TensorBytes != nil {
		return
	}
	m.Allocations++
	m.live(e.LiveBytes)
	t := m.findOrAdd(e.MemoryType)
	t.Allocations++
	t.Allocated += int64(e.AllocationBytes)
}

func (m *Memory) live(n uint64) {
	m.Live = int64(n)
	m.Peak = max(m.Peak, m.Live)
}

// Types lists the types of memory, the largest first.
func (m *Memory) Types() []*MemoryType {
	return slices.SortedFunc(maps.Values(m.types), func(a, b *MemoryType) int {
		return cmp.Or(cmp.Compare(b.Allocated, a.Allocated), cmp.Compare(a.Type, b.Type))
	})
}

// MemoryRow is what ggml's backends allocated.
type MemoryRow struct {
	Allocations int64         `json:"allocations"`
	Frees       int64         `json:"frees"`
	Live        int64         `json:"live_bytes"`
	Peak        int64         `json:"peak_bytes"`
	Types       []*MemoryType `json:"types"`
	Total       *Totals       `json:"session,omitempty"`
}

// Elsewhere reports whether a device with memory of its own took part, whose limits are not those of the machine that
// were measured.
func (m *MemoryRow) Elsewhere() bool {
	return slices.ContainsFunc(m.Types, func(t *MemoryType) bool { return t.Type != "ram" })
}

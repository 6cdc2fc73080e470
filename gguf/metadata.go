package gguf

import (
	"fmt"
	"math"
)

// KV is one metadata entry.
type KV struct {
	Key   string
	Value Value
}

// Metadata is the key-value part of a file, in file order. The zero value is empty and ready for use.
type Metadata struct {
	entries []KV
	index   map[string]int
}

// Len is the number of entries.
func (m *Metadata) Len() int { return len(m.entries) }

// All are the entries in file order. The slice belongs to m: read it only.
func (m *Metadata) All() []KV { return m.entries }

// Has reports whether key is there, with any type.
func (m *Metadata) Has(key string) bool {
	_, ok := m.index[key]
	return ok
}

// Value is the entry of that name.
func (m *Metadata) Value(key string) (Value, bool) {
	i, ok := m.index[key]
	if !ok {
		return Value{}, false
	}
	return m.entries[i].Value, true
}

// Set adds an entry at the end, or replaces the value of an existing one in its place. data is one of the Go types
// that Value lists; a Writer refuses others.
func (m *Metadata) Set(key string, data any) {
	if i, ok := m.index[key]; ok {
		m.entries[i].Value = Value{data}
		return
	}
	if m.index == nil {
		m.index = make(map[string]int)
	}
	m.index[key] = len(m.entries)
	m.entries = append(m.entries, KV{key, Value{data}})
}

// Text is the string of that key; ok is false where it is absent or no string.
func (m *Metadata) Text(key string) (s string, ok bool) {
	v, _ := m.Value(key)
	s, ok = v.Data.(string)
	return s, ok
}

// Int is the number of that key, whatever integer type it is stored as. ok is false where it is absent, no integer,
// or beyond int64.
func (m *Metadata) Int(key string) (n int64, ok bool) {
	v, _ := m.Value(key)
	return v.int()
}

func (v Value) int() (int64, bool) {
	switch n := v.Data.(type) {
	case uint8:
		return int64(n), true
	case int8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case int16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case int32:
		return int64(n), true
	case uint64:
		return int64(n), n <= math.MaxInt64
	case int64:
		return n, true
	}
	return 0, false
}

// Float is the number of that key, stored as float32 or float64.
func (m *Metadata) Float(key string) (f float64, ok bool) {
	v, _ := m.Value(key)
	switch n := v.Data.(type) {
	case float32:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// Flag is the bool of that key.
func (m *Metadata) Flag(key string) (b, ok bool) {
	v, _ := m.Value(key)
	b, ok = v.Data.(bool)
	return b, ok
}

// Texts is the string array of that key. The slice belongs to m.
func (m *Metadata) Texts(key string) (s []string, ok bool) {
	v, _ := m.Value(key)
	s, ok = v.Data.([]string)
	return s, ok
}

// Ints is the integer array of that key, or a single integer as an array of one: llama.cpp allows either where a
// value may differ from layer to layer, such as attention.head_count_kv. The result is a copy.
func (m *Metadata) Ints(key string) (n []int64, ok bool) {
	v, _ := m.Value(key)
	if one, ok := v.int(); ok {
		return []int64{one}, true
	}
	switch s := v.Data.(type) {
	case []uint32:
		return widen(s), true
	case []int32:
		return widen(s), true
	case []uint16:
		return widen(s), true
	case []int16:
		return widen(s), true
	case []uint8:
		return widen(s), true
	case []int8:
		return widen(s), true
	case []int64:
		return widen(s), true
	case []uint64:
		for _, u := range s {
			if u > math.MaxInt64 {
				return nil, false
			}
		}
		return widen(s), true
	}
	return nil, false
}

func widen[T uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64](s []T) []int64 {
	out := make([]int64, len(s))
	for i, x := range s {
		out[i] = int64(x)
	}
	return out
}

// add appends an entry that a file brings; a name seen before is an error.
func (m *Metadata) add(kv KV) error {
	if m.Has(kv.Key) {
		return fmt.Errorf("key %q stands twice", kv.Key)
	}
	m.Set(kv.Key, kv.Value.Data)
	return nil
}

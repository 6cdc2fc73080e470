package gguf

import (
	"fmt"
	"math"
	"reflect"
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
	return integer(reflect.ValueOf(v.Data))
}

// integer is the value of an integer of any type; false where it is none, or beyond int64.
func integer(v reflect.Value) (int64, bool) {
	switch {
	case v.CanInt():
		return v.Int(), true
	case v.CanUint():
		return int64(v.Uint()), v.Uint() <= math.MaxInt64
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
	if types, ok := v.Data.([]int32); ok { // of tokens, which are many
		n = make([]int64, len(types))
		for i, x := range types {
			n[i] = int64(x)
		}
		return n, true
	}
	list := reflect.ValueOf(v.Data)
	if one, ok := integer(list); ok {
		return []int64{one}, true
	}
	if list.Kind() != reflect.Slice {
		return nil, false
	}
	if _, ok := integer(reflect.Zero(list.Type().Elem())); !ok {
		return nil, false
	}
	n = make([]int64, list.Len())
	for i := range n {
		if n[i], ok = integer(list.Index(i)); !ok {
			return nil, false
		}
	}
	return n, true
}

// add appends an entry that a file brings; a name seen before is an error.
func (m *Metadata) add(kv KV) error {
	if m.Has(kv.Key) {
		return fmt.Errorf("key %q stands twice", kv.Key)
	}
	m.Set(kv.Key, kv.Value.Data)
	return nil
}

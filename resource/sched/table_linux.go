package sched

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource/bpf"
)

// Sizes of the table of threads (table.h).
const (
	defaultThreads = 8192
	places         = 8
)

// unsteadyTries is how often the accounts of a thread are read that changes meanwhile.
const unsteadyTries = 16

// slot is struct thread_slot of table.h.
type slot struct {
	Key      threadKey
	Reached  [places]uint8
	Accounts accounts
}

// placeOf is place_of of table.h.
func placeOf(tid, i uint32) uint32 {
	if i == 0 {
		return tid
	}
	return tid * 2654435769 * (2*i + 1) >> 16
}

// A table is that of threads, seen from the reader's side.
type table struct {
	size    uint32
	threads *ebpf.Map
	claims  *ebpf.Map
	memory  *ebpf.Memory
	stride  int64
}

// tableSize is the smallest power of two that holds so many threads; the default for 0.
func tableSize(threads uint32) uint32 {
	if threads == 0 {
		return defaultThreads
	}
	return 1 << bits.Len32(threads-1)
}

func openTable(set *bpf.Set, size uint32) (*table, error) {
	t := &table{size: size, threads: set.Map("threads"), claims: set.Map("claims")}
	t.stride = int64(t.threads.ValueSize()+7) &^ 7
	if want := binary.Size(slot{}); int(t.threads.ValueSize()) != want {
		return nil, fmt.Errorf("a thread's accounts have %d bytes in the kernel, %d here", t.threads.ValueSize(), want)
	}
	var err error
	if t.memory, err = t.threads.Memory(); err != nil {
		return nil, fmt.Errorf("map the table of threads: %w", err)
	}
	return t, nil
}

// each calls f for every thread that has a place.
func (t *table) each(f func(index uint32, key threadKey) error) error {
	var word [8]byte
	for index := range t.size {
		if _, err := t.memory.ReadAt(word[:], int64(index)*t.stride); err != nil {
			return fmt.Errorf("read the table of threads: %w", err)
		}
		key := threadKey{binary.NativeEndian.Uint32(word[:4]), binary.NativeEndian.Uint32(word[4:])}
		if key.TID == 0 {
			continue
		}
		if err := f(index, key); err != nil {
			return err
		}
	}
	return nil
}

// read returns the accounts at a place, those of one moment. It is not ok where they change each time that it is
// tried, or have not begun.
func (t *table) read(index uint32, key threadKey) (a accounts, ok bool, err error) {
	for range unsteadyTries {
		var s slot
		if err := t.threads.Lookup(index, &s); err != nil {
			return a, false, fmt.Errorf("read the table of threads: %w", err)
		}
		if s.Key == key && s.Accounts.Born != 0 && s.Accounts.steady() {
			return s.Accounts, true, nil
		}
	}
	return a, false, nil
}

// free makes a place free.
func (t *table) free(index uint32, key threadKey) error {
	var blank slot
	accountsAt := int64(binary.Size(blank.Key) + binary.Size(blank.Reached))
	at := int64(index) * t.stride
	for _, part := range []struct{ from, bytes int64 }{{accountsAt, int64(binary.Size(blank.Accounts))},
		{0, int64(binary.Size(blank.Key))}} {
		if _, err := t.memory.WriteAt(make([]byte, part.bytes), at+part.from); err != nil {
			return fmt.Errorf("free a place in the table of threads: %w", err)
		}
	}
	for _, claim := range []threadKey{key, {Start: index}} {
		if err := t.claims.Delete(claim); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("free a place in the table of threads: %w", err)
		}
	}
	return nil
}

// taken reports whether an entry of a map was refused because it exists already, or because the map is full.
func taken(err error) bool { return errors.Is(err, unix.EEXIST) || errors.Is(err, unix.E2BIG) }

// begin gives a thread a place, as begin of table.h does, unless it has one or there is none.
func (t *table) begin(key threadKey, a accounts) error {
	claim := func(k threadKey) (bool, error) {
		err := t.claims.Update(k, uint8(1), ebpf.UpdateNoExist)
		if err != nil && !taken(err) {
			return false, fmt.Errorf("begin with thread %d: %w", key.TID, err)
		}
		return err == nil, nil
	}
	if ok, err := claim(key); !ok {
		return err
	}
	for i := range uint32(places) {
		index := placeOf(key.TID, i) & (t.size - 1)
		ok, err := claim(threadKey{Start: index})
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		return t.write(key, index, i, a)
	}
	return t.claims.Delete(key)
}

// write writes accounts to a place that is claimed, their beginning last.
func (t *table) write(key threadKey, index, reached uint32, a accounts) error {
	text, err := binary.Append(nil, binary.NativeEndian, slot{Key: key, Accounts: a})
	if err != nil {
		return err
	}
	at, head := int64(index)*t.stride, int64(binary.Size(slot{})-binary.Size(accounts{}))
	type write struct {
		text []byte
		at   int64
	}
	writes := []write{{text[head+8:], at + head + 8}, {text[:8], at}, {text[head : head+8], at + head}}
	if reached > 0 {
		writes = append(writes, write{[]byte{1}, int64(key.TID&(t.size-1))*t.stride + 8 + int64(reached)})
	}
	for _, w := range writes {
		if _, err := t.memory.WriteAt(w.text, w.at); err != nil {
			return fmt.Errorf("begin with thread %d: %w", key.TID, err)
		}
	}
	return nil
}

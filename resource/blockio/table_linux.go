package blockio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource/bpf"
)

// memory is what BPF programs and the reader share.
type memory struct {
	set    *bpf.Set
	table  []byte
	counts []byte
	banks  int // processors, and one for all
	rows   int

	before  []counts // of each row at the last snapshot
	touched []uint64 // sum of events of each row then
	idle    []int    // snapshots in which a row did nothing
	buffer  []request
}

// mapMemory maps an array of the object's.
func mapMemory(m *ebpf.Map, size int) ([]byte, error) {
	page := os.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory of BPF map %s: %w", m.String(), err)
	}
	return b, nil
}

func newMemory(set *bpf.Set, processors, rows int) (*memory, error) {
	m := &memory{set: set, banks: processors + 1, rows: rows}
	m.before, m.touched, m.idle = make([]counts, rows), make([]uint64, rows), make([]int, rows)
	var err error
	if m.table, err = mapMemory(set.Map(".bss"), tableSize); err != nil {
		return nil, err
	}
	if m.counts, err = mapMemory(set.Map("counts"), countsSize*m.banks*rows); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *memory) close() error {
	var errs []error
	for _, b := range [][]byte{m.table, m.counts} {
		if b != nil {
			errs = append(errs, unix.Munmap(b))
		}
	}
	m.table, m.counts = nil, nil
	return errors.Join(errs...)
}

// beginEpoch begins a new epoch and returns the parity of the one that ended.
func (m *memory) beginEpoch() int {
	epoch := u32(m.table, epochAt)
	binary.NativeEndian.PutUint32(m.table[epochAt:], epoch+1)
	return int(epoch & 1)
}

// widen has the programs find out anew who is wanted, in the same epoch.
func (m *memory) widen() {
	binary.NativeEndian.PutUint32(m.table[epochAt:], u32(m.table, epochAt)+2)
}

// depth is how many requests a disk has now, as the programs count them: reading one after the other may take in one
// that has ended, and one that took its place.
func (m *memory) depth(index int) int64 { return int64(u64(m.table, disksAt+diskSize*index+8)) }

// deepest takes the largest depth of a disk in the epoch that ended.
func (m *memory) deepest(index, parity int) int64 {
	at := disksAt + diskSize*index + 16 + 8*parity
	n := u64(m.table, at)
	binary.NativeEndian.PutUint64(m.table[at:], 0)
	return int64(n)
}

func (m *memory) lost() (n [lostCount]uint64) {
	for i := range n {
		n[i] = u64(m.table, lostAt+8*i)
	}
	return n
}

// requests are those that have not ended. The slice is used again by the next call.
func (m *memory) requests() []request {
	m.buffer = readRequests(m.buffer[:0], m.table)
	return m.buffer
}

// inUse reports whether there is a row at an index.
func (m *memory) inUse(index int) bool {
	state := u32(m.table, rowsAt+rowSize*index)
	return state == ready || state == retired
}

// since returns what a row has counted since the last snapshot; nil is nothing.
func (m *memory) since(index int) *delta {
	var events uint64
	for bank := range m.banks {
		events += u64(m.counts, countsSize*(bank*m.rows+index))
	}
	if events == m.touched[index] {
		m.idle[index]++
		return nil
	}
	m.touched[index], m.idle[index] = events, 0
	var now counts
	for bank := range m.banks {
		now.add(m.counts[countsSize*(bank*m.rows+index):][:countsSize])
	}
	d := now.since(&m.before[index])
	m.before[index] = now
	return &d
}

// retireAfter is in how many snapshots a row must have done nothing before it is given back.
const retireAfter = 16

// tend gives rows back that have long done nothing: first no request finds them any more, then, when none that
// found them before is left, they are free. Their counters continue from where they are.
func (m *memory) tend(index int, r *row, busy bool) {
	if index < fixedRows || busy || m.idle[index] < retireAfter {
		return
	}
	state := uint32(retired)
	if r.state == retired {
		if m.idle[index] < 2*retireAfter {
			return
		}
		state = free
		m.idle[index] = 0
	}
	binary.NativeEndian.PutUint32(m.table[rowsAt+rowSize*index:], state)
}

// old is the argument of the programs is_alive and give_up.
type old struct {
	Key     uint64
	IssueNS uint64
	At      uint32
	Answer  uint32
}

// ask runs one of them.
func (m *memory) ask(name string, r *request) (bool, error) {
	p := m.set.Program(name)
	if p == nil {
		return false, errors.ErrUnsupported
	}
	o := old{Key: r.key, IssueNS: r.issueNS, At: uint32(r.at)}
	if _, err := p.Run(&ebpf.RunOptions{Context: &o, ContextOut: &o}); err != nil {
		return false, fmt.Errorf("run BPF program %s: %w", name, err)
	}
	return o.Answer != 0, nil
}

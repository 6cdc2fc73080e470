package blockio

import (
	"encoding/binary"
	"testing"

	"github.com/llamatap/llamatap/resource"
)

// TestFullTable: requests that find no room are counted, the others are followed.
func TestFullTable(t *testing.T) {
	dev := loop(t, 64, "")
	c := open(t, Options{Devices: []string{dev}, buckets: 1})
	before := kernelStats(t, dev)
	fio(t, dev, "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=32", "--size=8m")
	line := snap(t, c)
	d, after := of(line, dev), kernelStats(t, dev)
	if line.Lost.Requests == 0 || d.Requests == 0 {
		t.Errorf("lost %+v, %d requests", line.Lost, d.Requests)
	}
	// What found no room at its start may find it at its issue, and is followed from there: what is lost was
	// refused twice.
	if seen, all := d.Requests+value(d.Untimed), after.done[0]-before.done[0]; seen > all ||
		seen+line.Lost.Requests < all {
		t.Errorf("%d requests and %d without room, the kernel has %d", seen, line.Lost.Requests, all)
	}
	if value(d.DepthMax) > ways {
		t.Errorf("a depth of %d with room for %d", *d.DepthMax, ways)
	}
	line = snap(t, c)
	if d := of(line, dev); value(d.Inflight) != 0 || line.Lost.Requests != 0 {
		t.Errorf("after the end %+v, lost %+v", d.BlockFigures, line.Lost)
	}
}

// TestFullRows: processes that find no room are counted for their disk, and rows of those that are gone are used again.
func TestFullRows(t *testing.T) {
	dev := loop(t, 64, "")
	c := open(t, Options{Devices: []string{dev}, rows: 4})
	read := func() *resource.BlockLine {
		for range 10 {
			run(t, "dd", "if="+dev, "of=/dev/null", "bs=64k", "count=8", "iflag=direct")
		}
		return snap(t, c)
	}
	line := read()
	d := of(line, dev)
	if d.Requests+value(d.Untimed) != 80 || d.Bytes != 80<<16 {
		t.Errorf("%d requests of %d bytes, want 80 of 64 KiB", d.Requests, d.Bytes)
	}
	var rest uint64
	for _, p := range line.Processes {
		if p.PID == 0 && p.Comm == "" {
			rest += p.Requests + value(p.Untimed)
		}
	}
	if len(line.Processes) != 5 || rest != 48 || line.Lost.Rows != 48 {
		t.Errorf("%d processes, %d requests of others, lost %+v", len(line.Processes), rest, line.Lost)
	}
	for range 2*retireAfter + 2 {
		if line := snap(t, c); len(line.Devices) != 0 {
			t.Fatalf("of nothing %+v", line.Devices)
		}
	}
	line = read()
	if d := of(line, dev); len(line.Processes) != 5 || d.Requests+value(d.Untimed) != 80 || d.Bytes != 80<<16 {
		t.Errorf("%d processes, %d requests of %d bytes", len(line.Processes), d.Requests, d.Bytes)
	}
}

// TestOrphans: a request whose end was not seen is given up, and the depth is right again; one that the kernel
// still has is not.
func TestOrphans(t *testing.T) {
	dev := loop(t, 64, "")
	c := open(t, Options{Devices: []string{dev}})
	run(t, "dd", "if="+dev, "of=/dev/null", "bs=64k", "count=1", "iflag=direct")
	snap(t, c)
	index := -1
	for i := range c.memory.rows {
		if r := readRow(c.memory.table, i); r.state == ready {
			index = i
		}
	}
	if index < 0 {
		t.Fatal("no row")
	}
	// A slot with an address that is no request's, as one that a missed completion left.
	disk := int(readRow(c.memory.table, index).disk)
	const at = 5
	put := binary.NativeEndian.PutUint64
	slot := c.memory.table[slotsAt+slotSize*at:]
	put(slot[8:], uint64(c.last))
	binary.NativeEndian.PutUint32(slot[16:], 4096)
	binary.NativeEndian.PutUint16(slot[20:], uint16(index))
	binary.NativeEndian.PutUint16(slot[22:], uint16(disk))
	put(c.memory.table[disksAt+diskSize*disk+8:], 1)
	put(slot, 0x1234_5678_0000)
	line := snap(t, c)
	d := of(line, dev)
	if line.Lost.Orphans != 1 || value(d.Inflight) != 0 || value(d.Untimed) != 1 || d.Bytes != 4096 {
		t.Errorf("lost %+v, %+v", line.Lost, d.BlockFigures)
	}
	if depth := u64(c.memory.table, disksAt+diskSize*disk+8); depth != 0 {
		t.Errorf("a depth of %d", depth)
	}
	if line := snap(t, c); line.Lost.Orphans != 0 {
		t.Errorf("lost again %+v", line.Lost)
	}
}

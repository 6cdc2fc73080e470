package memory

import (
	"context"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// regionTable is what region_map.parquet says, by region.
type regionTable struct {
	all  map[int]*regionRow
	sums [16]uint64 // bytes by type
}

type regionRow struct {
	kind           memtrace.RegionType
	name, kv       string
	device         string
	layer          *int64
	ctx            int64 // of a cache; noContext: none is reported
	bytes          uint64
	buffer, offset uint64
	start          uint64 // address of the host; 0: none
	alloc          int64
}

// maxRegions bounds how many regions a table may have.
const maxRegions = 1 << 22

// readRegions reads a run's table of regions; one that is not there is empty.
func readRegions(ctx context.Context, dir string) (*regionTable, error) {
	t := &regionTable{all: map[int]*regionRow{}}
	form := table.Form{Name: rundir.RegionsName, Columns: []table.Column{
		{Name: "region_id", Kind: table.Int64}, {Name: "region_type", Kind: table.Text},
		{Name: "name", Kind: table.Text}, {Name: "size_bytes", Kind: table.Int64},
	}}
	_, err := table.EachRow(ctx, dir, form,
		[]string{"layer", "start_addr", "device", "kv", "ctx", "buffer_id", "offset",
			"alloc_ns"}, maxRegions, t.row)
	return t, err
}

func (t *regionTable) row(s *table.Row) error {
	kind, err := memtrace.ParseRegionType(s.Text("region_type"))
	if err != nil {
		return err
	}
	g := &regionRow{kind: kind, name: s.Text("name"), kv: s.Text("kv"), device: s.Text("device"),
		bytes: uint64(s.Int("size_bytes"))}
	if layer, ok := s.Value("layer"); ok {
		g.layer = &layer
	}
	g.ctx = contextOf(s)
	g.buffer, g.offset, g.start, g.alloc = uint64(s.Int("buffer_id")), uint64(s.Int("offset")),
		uint64(s.Int("start_addr")), s.Int("alloc_ns")
	t.all[int(s.Int("region_id"))] = g
	if kind != memtrace.Activation { // they share the memory of compute buffers
		t.sums[kind] += g.bytes
	}
	return nil
}

// bytes returns how large the regions of a type are together.
func (t *regionTable) bytes(kind memtrace.RegionType) uint64 {
	if kind == memtrace.Activation {
		return t.sums[memtrace.ComputeBuffer]
	}
	return t.sums[kind]
}

// describe says of a region what the table does.
func (t *regionTable) describe(g *Region) {
	if row := t.all[g.ID]; row != nil {
		g.Type, g.Name, g.KV, g.Device, g.Layer, g.Bytes = row.kind.String(), row.name, row.kv, row.device, row.layer,
			row.bytes
	}
}

// place is where a region lies, as touches count it.
func (g *regionRow) place() memtrace.Place {
	p := memtrace.Place{Offset: g.offset, Bytes: g.bytes}
	if g.buffer == 0 {
		p.Offset = g.start
	}
	if g.kind == memtrace.Weight {
		p.Written = g.alloc
	}
	return p
}

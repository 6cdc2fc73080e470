package analyze

import (
	"cmp"
	"context"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// region is a row of region_map.parquet. Times are Unix nanoseconds; 0 is none.
type region struct {
	ID                    int64
	Type                  memtrace.RegionType
	Name, Part            string // Part: of a cache, k or v
	Layer, Ctx            int64  // -1: none
	Start                 uint64 // address of the host; 0: none
	Buffer                int64  // 0: none
	Offset, Bytes         uint64
	FirstRead, LastRead   int64
	FirstWrite, LastWrite int64
	Reads, Writes         int64
	BytesRead             uint64
	BytesWritten          uint64
	// Share is how much of the memory that it shares with others counts as its own.
	Share uint64
}

var regionForm = form(rundir.RegionsName, []string{"region_type", "name"}, nil,
	"region_id", "layer", "start_addr", "size_bytes", "first_write_ns", "last_write_ns", "first_read_ns",
	"last_read_ns", "n_writes", "n_reads", "bytes_written", "bytes_read")

var regionMore = []string{"kv", "ctx", "buffer_id", "offset"}

// readRegions reads a run's map of memory; one that is not there is empty, and found is false.
func readRegions(ctx context.Context, dir string) (regions []region, found bool, err error) {
	found, err = table.EachRow(ctx, dir, regionForm, regionMore, mostRows, func(row *table.Row) error {
		kind, err := memtrace.ParseRegionType(row.Text("region_type"))
		if err != nil {
			return err
		}
		r := region{
			ID: row.Int("region_id"), Type: kind, Name: row.Text("name"), Part: row.Text("kv"),
			Layer: orNone(row, "layer"), Ctx: orNone(row, "ctx"),
			Start: uint64(row.Int("start_addr")), Buffer: row.Int("buffer_id"),
			Offset: uint64(row.Int("offset")), Bytes: uint64(row.Int("size_bytes")),
			FirstRead: row.Int("first_read_ns"), LastRead: row.Int("last_read_ns"),
			FirstWrite: row.Int("first_write_ns"), LastWrite: row.Int("last_write_ns"),
			Reads: row.Int("n_reads"), Writes: row.Int("n_writes"),
			BytesRead: uint64(row.Int("bytes_read")), BytesWritten: uint64(row.Int("bytes_written")),
		}
		regions = append(regions, r)
		return nil
	})
	share(regions)
	return regions, found, err
}

func orNone(row *table.Row, name string) int64 {
	if v, ok := row.Value(name); ok {
		return v
	}
	return -1
}

// shared is a buffer that activations share: their sizes added up, its end, and how much of the sum has its share.
type shared struct{ bytes, end, given uint64 }

// part is how much of the buffer so much of the sum stands for.
func (b *shared) part(of uint64) uint64 {
	if of == b.bytes {
		return b.end
	}
	return uint64(float64(b.end) * (float64(of) / float64(b.bytes)))
}

// share divides memory that several regions share: activations of a buffer lie above each other, so that their
// sizes add up to more than there is. Each gets as much of the buffer as it has of their sum.
func share(regions []region) {
	buffers := map[int64]*shared{}
	for i := range regions {
		r := &regions[i]
		r.Share = r.Bytes
		if r.Buffer == 0 {
			continue
		}
		b := buffers[r.Buffer]
		if b == nil {
			b = &shared{}
			buffers[r.Buffer] = b
		}
		b.end = max(b.end, r.Offset+r.Bytes)
		if r.Type == memtrace.Activation && r.Reads+r.Writes > 0 {
			b.bytes += r.Bytes
		}
	}
	for i := range regions {
		r := &regions[i]
		if b := buffers[r.Buffer]; r.Type == memtrace.Activation && b != nil && r.Reads+r.Writes > 0 && b.bytes > 0 {
			before, after := b.part(b.given), b.part(b.given+r.Bytes) // rounded so that all shares add up to the buffer
			r.Share, b.given = after-before, b.given+r.Bytes
		}
	}
}

// extent is a piece of a buffer.
type extent struct {
	buffer     int64
	start, end uint64
}

// space puts pieces of buffers behind each other, without what lies between, so that they have one axis.
type space struct {
	extents []extent // by place, disjoint
	base    []uint64 // where each begins on the axis
	bytes   uint64
}

func newSpace(extents []extent) *space {
	extents = slices.Clone(extents)
	slices.SortFunc(extents, func(a, b extent) int {
		return cmp.Or(cmp.Compare(a.buffer, b.buffer),
			cmp.Compare(a.start, b.start))
	})
	s := &space{}
	for _, e := range extents {
		if e.end <= e.start {
			continue
		}
		if n := len(s.extents) - 1; n >= 0 && s.extents[n].buffer == e.buffer && s.extents[n].end >= e.start {
			s.extents[n].end = max(s.extents[n].end, e.end)
			continue
		}
		s.extents = append(s.extents, e)
	}
	for _, e := range s.extents {
		s.base = append(s.base, s.bytes)
		s.bytes += e.end - e.start
	}
	return s
}

// at finds the axis of a place; false where none of the pieces has it. left is how many bytes of the piece lie from
// there on.
func (s *space) at(buffer int64, offset uint64) (axis, left uint64, ok bool) {
	i, _ := slices.BinarySearchFunc(s.extents, extent{buffer: buffer, start: offset}, func(e, at extent) int {
		if c := cmp.Compare(e.buffer, at.buffer); c != 0 {
			return c
		}
		if e.end <= at.start {
			return -1
		}
		if e.start > at.start {
			return 1
		}
		return 0
	})
	if i == len(s.extents) || s.extents[i].buffer != buffer || s.extents[i].start > offset {
		return 0, 0, false
	}
	return s.base[i] + offset - s.extents[i].start, s.extents[i].end - offset, true
}

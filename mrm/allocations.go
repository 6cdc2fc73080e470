package mrm

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// allocationsName is the file of every buffer that ggml allocated, a line each, in raw/.
const allocationsName = "allocations.jsonl"

// allocation is one buffer of ggml's with its life: what mrm-trace had memray for.
type allocation struct {
	BufferID   int64            `json:"buffer_id"`
	BufferType string           `json:"buffer_type,omitempty"` // ggml's name of its kind
	Device     string           `json:"device,omitempty"`
	Address    string           `json:"address,omitempty"` // of the host, hexadecimal; absent on a device
	Bytes      int64            `json:"size_bytes"`
	AllocNS    int64            `json:"alloc_ns,omitempty"` // Unix time
	FreeNS     int64            `json:"free_ns,omitempty"`  // absent: it was there at the end
	File       string           `json:"file,omitempty"`     // that is mapped there
	Holds      map[string]int64 `json:"holds"`              // bytes by region type
}

// allocationForm is the table of regions as far as it is read.
var allocationForm = table.Form{Name: rundir.RegionsName, Columns: []table.Column{
	{Name: "buffer_id", Kind: table.Int64}, {Name: "region_type", Kind: table.Text},
	{Name: "size_bytes", Kind: table.Int64}, {Name: "offset", Kind: table.Int64},
	{Name: "start_addr", Kind: table.Int64}, {Name: "buffer_type", Kind: table.Text},
	{Name: "device", Kind: table.Text}, {Name: "file", Kind: table.Text}, {Name: "alloc_ns", Kind: table.Int64},
	{Name: "free_ns", Kind: table.Int64},
}}

// mostRegions bounds the regions that are read.
const mostRegions = 1 << 32

// allocations gathers the buffers of a run's table of regions, in the order in which they were allocated. The regions
// of a buffer are together the whole of it; activations lie over them.
func allocations(dir string) ([]*allocation, error) {
	byID := map[int64]*allocation{}
	found, err := table.EachRow(context.Background(), dir, allocationForm, nil, mostRegions, func(r *table.Row) error {
		id, ok := r.Value("buffer_id")
		if !ok || r.Text("region_type") == memtrace.Activation.String() {
			return nil
		}
		a := byID[id]
		if a == nil {
			a = &allocation{BufferID: id, BufferType: r.Text("buffer_type"), Device: r.Text("device"),
				AllocNS: r.Int("alloc_ns"), FreeNS: r.Int("free_ns"), Holds: map[string]int64{}}
			byID[id] = a
		}
		if start := r.Int("start_addr"); start != 0 && a.Address == "" {
			a.Address = fmt.Sprintf("0x%x", uint64(start)-uint64(r.Int("offset")))
		}
		a.File = cmp.Or(a.File, r.Text("file"))
		a.Bytes += r.Int("size_bytes")
		a.Holds[r.Text("region_type")] += r.Int("size_bytes")
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%s: %w: run the experiment again", filepath.Join(dir, rundir.RegionsName), fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	all := make([]*allocation, 0, len(byID))
	for _, a := range byID {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *allocation) int {
		return cmp.Or(cmp.Compare(a.AllocNS, b.AllocNS), cmp.Compare(a.BufferID, b.BufferID))
	})
	return all, nil
}

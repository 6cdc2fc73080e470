package mrm

import (
	"cmp"
	"fmt"
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

// columns of the table that are read.
var allocationColumns = []string{"buffer_id", "region_type", "size_bytes", "offset", "start_addr", "buffer_type",
	"device", "file", "alloc_ns", "free_ns"}

// allocations gathers the buffers of a table of regions, in the order in which they were allocated. The regions of
// a buffer are together the whole of it; activations lie over them.
func allocations(path string) ([]*allocation, error) {
	file, err := rundir.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := table.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	byID := map[int64]*allocation{}
	for group := range reader.Groups() {
		columns := map[string]table.Values{}
		for _, name := range allocationColumns {
			if columns[name], err = reader.Column(group, name); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		for row, ok := range columns["buffer_id"].Valid {
			number := func(name string) int64 {
				if v := columns[name]; v.Valid[row] {
					return v.Ints[row]
				}
				return 0
			}
			text := func(name string) string {
				if v := columns[name]; v.Valid[row] {
					return v.Texts[row]
				}
				return ""
			}
			if !ok || text("region_type") == memtrace.Activation.String() {
				continue
			}
			id := number("buffer_id")
			a := byID[id]
			if a == nil {
				a = &allocation{BufferID: id, BufferType: text("buffer_type"), Device: text("device"),
					AllocNS: number("alloc_ns"), FreeNS: number("free_ns"), Holds: map[string]int64{}}
				byID[id] = a
			}
			if start := number("start_addr"); start != 0 && a.Address == "" {
				a.Address = fmt.Sprintf("0x%x", uint64(start)-uint64(number("offset")))
			}
			a.File = cmp.Or(a.File, text("file"))
			a.Bytes += number("size_bytes")
			a.Holds[text("region_type")] += number("size_bytes")
		}
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

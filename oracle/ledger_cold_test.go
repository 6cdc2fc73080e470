//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// filed says where a region begins: in the mapped file, and in its buffer.
type filed struct {
	tensor             string
	fileOffset, offset int64
}

// filedRegions reads where the weights of a run lie, by region.
func filedRegions(t *testing.T, dir string) map[int64]filed {
	t.Helper()
	r, err := table.NewReader(bytes.NewReader(slurp(t, filepath.Join(dir, rundir.RegionsName))))
	if err != nil {
		t.Fatal(err)
	}
	all := map[int64]filed{}
	for group := range r.Groups() {
		columns := map[string]table.Values{}
		for _, name := range []string{"region_id", "region_type", "tensor", "file_offset", "offset"} {
			if columns[name], err = r.Column(group, name); err != nil {
				t.Fatal(err)
			}
		}
		for i, kind := range columns["region_type"].Texts {
			if kind == "weight" && columns["file_offset"].Valid[i] {
				all[columns["region_id"].Ints[i]] = filed{columns["tensor"].Texts[i], columns["file_offset"].Ints[i],
					columns["offset"].Ints[i]}
			}
		}
	}
	return all
}

// firsts notes in which order tensors are touched first, and which pages of the file are.
type firsts struct {
	order []string
	seen  map[string]bool
	pages map[int64]bool
}

func newFirsts() *firsts { return &firsts{seen: map[string]bool{}, pages: map[int64]bool{}} }

func (f *firsts) touch(tensor string, begin, end int64) {
	if !f.seen[tensor] {
		f.seen[tensor] = true
		f.order = append(f.order, tensor)
	}
	for page := begin / 4096; page*4096 < end; page++ {
		f.pages[page] = true
	}
}

// inCommon is how many tensors both orders have in the same order: the longest sequence that is in both.
func inCommon(a, b []string) int {
	best := make([]int, len(b)+1)
	for _, x := range a {
		above := 0
		for j, y := range b {
			left := best[j+1]
			if x == y {
				best[j+1] = above + 1
			} else {
				best[j+1] = max(best[j+1], best[j])
			}
			above = left
		}
	}
	return best[len(b)]
}

// TestLedgerOfColdModel: of a model that nobody has read and that is not read when it is loaded, the kernel counts
// a page fault where a tensor is touched first. Those are the tensors that the ledger says were read, in the same
// order, and at least 99 % of their pages.
func TestLedgerOfColdModel(t *testing.T) {
	testenv.Slow(t)
	testenv.NeedBPF(t)
	model := synthetic(t, "llama", gguf.F16, func(c *synth.Config) { c.Layers, c.Width, c.FF = 6, 512, 1536 })
	file, err := gguf.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	emptied(t, model)
	rows, dir := ledgerOf(t, "llama-completion", "--tap-cold", "--tap-ledger", "--tap-host", "waits",
		"--tap-host-details",
		"-m", model, "-p", "One two three", "-n", "2", "-no-cnv", "--temp", "0", "--no-warmup", "-t", "1",
		"--no-repack")
	fromLedger, faulted := newFirsts(), newFirsts()
	regions := filedRegions(t, dir)
	for i := range rows {
		r := &rows[i]
		region, ok := regions[r.id]
		if r.region != "weight" || r.op != "read" || !ok {
			continue
		}
		at := region.fileOffset + r.offset - region.offset
		fromLedger.touch(region.tensor, at, at+r.size)
	}
	lines, err := os.ReadFile(filepath.Join(dir, "host_faults.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		var f struct {
			Kind, File, Tensor string
			Offset             int64
		}
		if err := json.Unmarshal(line, &f); err != nil {
			t.Fatal(err)
		}
		if tensor, ok := file.At(f.Offset); ok && f.Kind == "fault" && f.File == model && fromLedger.seen[tensor.Name] {
			faulted.touch(tensor.Name, f.Offset, f.Offset+1)
		}
	}
	both := 0
	for page := range fromLedger.pages {
		if faulted.pages[page] {
			both++
		}
	}
	// A tensor that is smaller than a page may share one with its neighbour, which then was touched first.
	var large, seen []string
	for _, name := range fromLedger.order {
		if w, _ := file.Tensor(name); w.Bytes >= 4*4096 {
			large = append(large, name)
		}
	}
	for _, name := range faulted.order {
		if w, _ := file.Tensor(name); w.Bytes >= 4*4096 {
			seen = append(seen, name)
		}
	}
	common := inCommon(large, seen)
	t.Logf("%d tensors are in the ledger, %d faulted, %d in the same order; of %d pages in the ledger %d faulted",
		len(large), len(seen), common, len(fromLedger.pages), both)
	if len(large) < 40 || len(seen) != len(large) || common < len(large)-max(1, len(large)/100) {
		t.Errorf("read: %v\nfaulted: %v", large, seen)
	}
	if both*100 < len(fromLedger.pages)*99 || len(fromLedger.pages) < 1000 {
		t.Errorf("of %d pages %d faulted", len(fromLedger.pages), both)
	}
}

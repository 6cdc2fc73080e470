//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
	"golang.org/x/sys/unix"
)

// traceRow is what tests read of a row of trace.parquet. A number that is null is -1.
type traceRow struct {
	collector, op, kind, phase, symbol                        string
	ts, addr, size, region, token, exec, layer, block, window int64
	pieces, stride                                            int64
}

// traceRows reads all parts of a run's trace.
func traceRows(t *testing.T, dir string) (rows []traceRow, use sample.Use) {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(dir, "trace*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(parts)
	for _, part := range parts {
		text, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		r, err := table.NewReader(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		if about, ok := r.Metadata(sample.MetadataKey); ok {
			if err := json.Unmarshal([]byte(about), &use); err != nil {
				t.Error(err)
			}
		}
		for group := range r.Groups() {
			rows = append(rows, traceGroup(t, r, group)...)
		}
	}
	return rows, use
}

func traceGroup(t *testing.T, r *table.Reader, group int) (rows []traceRow) {
	column := func(name string) table.Values {
		v, err := r.Column(group, name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	texts, ints := map[string]table.Values{}, map[string]table.Values{}
	for _, name := range []string{"collector", "op", "region_type", "phase", "symbol"} {
		texts[name] = column(name)
	}
	for _, name := range []string{"ts_ns", "addr", "size", "region_id", "token_index", "graph_seq", "layer", "kv_block",
		"window_ns", "pieces", "stride"} {
		ints[name] = column(name)
	}
	for i := range ints["ts_ns"].Valid {
		number := func(name string) int64 {
			if v := ints[name]; v.Valid[i] {
				return v.Ints[i]
			}
			return -1
		}
		word := func(name string) string { return texts[name].Texts[i] }
		rows = append(rows, traceRow{
			word("collector"), word("op"), word("region_type"), word("phase"), word("symbol"), number("ts_ns"),
			number("addr"), number("size"), number("region_id"),
			number("token_index"), number("graph_seq"), number("layer"), number("kv_block"), number("window_ns"),
			number("pieces"), number("stride"),
		})
	}
	return rows
}

// residentPages are the pages of a file that are in the page cache, as mincore(2) reports.
func residentPages(t *testing.T, path string) []bool {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	found := make([]byte, (len(mem)+4095)/4096)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)),
		uintptr(unsafe.Pointer(&found[0]))); errno != 0 {
		t.Fatal(errno)
	}
	pages := make([]bool, len(found))
	for i, b := range found {
		pages[i] = b&1 != 0
	}
	return pages
}

// TestSampledFaultsOfColdModel: of a model that nobody has read, each page of the tensors that graphs read whole is
// faulted in, and recorded: by two witnesses, the map of what graphs read, and what the kernel has of the file in
// memory behind the run.
func TestSampledFaultsOfColdModel(t *testing.T) {
	model := synthetic(t, "llama", gguf.F16, func(c *synth.Config) {
		c.Layers, c.Width, c.FF, c.Seed = 3, 256, 768, 77
	})
	file, err := gguf.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	emptied(t, model)
	if before := residentPages(t, model); slices.Index(before[len(before)/2:], true) >= 0 {
		testenv.Beyond(t, "a file system whose pages leave the page cache on request", "they stay")
	}
	run := llamatap(t, "llama-completion", "--tap-cold", "--tap-samples", "faults", "-m", model, "-p", "One two three",
		"-n", "4", "-no-cnv", "--temp", "0",
		"--no-warmup", "-t", "2", "--no-repack").good(t)
	after := residentPages(t, model)
	rows, _ := traceRows(t, run.dirs[0])
	regions, _ := regionRows(t, run.dirs[0])
	var start int64
	sampled := map[int64]bool{} // pages of the file
	for _, r := range regions {
		if r.kind == "weight" && r.file != "" && start == 0 {
			start = r.start - r.fileOffset
		}
	}
	for _, r := range rows {
		if r.collector == "fault" && r.kind == "weight" && r.addr >= start {
			sampled[(r.addr-start)>>12] = true
			if r.phase != "generation" && r.phase != "weight_load" || r.phase == "generation" && r.exec < 0 {
				t.Errorf("%+v", r)
			}
		}
	}
	pages, missed := 0, 0
	for _, r := range regions {
		if r.kind != "weight" || r.reads == 0 || r.bytesRead < r.size {
			continue // of a table some rows are read
		}
		for page := r.fileOffset >> 12; page < (r.fileOffset+r.size)>>12; page++ {
			pages++
			if !sampled[page] {
				missed++
			}
		}
	}
	if pages < 500 || missed*100 > pages {
		t.Errorf("%d of %d pages that graphs have read were not recorded", missed, pages)
	}
	there, untold := 0, 0 // behind what was read ahead with the header
	first := file.Tensors[0].Offset
	for i := range file.Tensors {
		first = min(first, file.Tensors[i].Offset)
	}
	for page := first>>12 + 64; page < int64(len(after)); page++ {
		if after[page] {
			there++
			if !sampled[page] {
				untold++
			}
		}
	}
	if there < pages*9/10 || untold*100 > there {
		t.Errorf("%d pages of tensors are in memory, of which %d were not recorded; graphs read %d", there,
			untold, pages)
	}
	use := samplesOf(t, run.dirs[0])
	if use.Lossy || use.Lost() > 0 || len(use.Collectors) != 1 || use.Collectors[0].Samples < uint64(len(sampled)) {
		t.Errorf("%+v", use)
	}
}

// samplesOf is what a run's metadata say of samples.
func samplesOf(t *testing.T, dir string) (use sample.Use) {
	t.Helper()
	if err := json.Unmarshal(metadata(t, dir).Extra["memory_samples"], &use); err != nil {
		t.Fatal(err)
	}
	return use
}

// TestSamplesOfRun: faults of a usual run know their phase and place; the process is monitored; nothing is lost;
// and the text is that of a run without samples.
func TestSamplesOfRun(t *testing.T) {
	plain := llamatap(t, slices.Concat([]string{"run"}, generate(12))...).good(t)
	run := llamatap(t, slices.Concat([]string{"run", "--tap-samples", "faults,pages", "--tap-process-interval", "50ms"},
		generate(12))...).good(t)
	if run.stdout != plain.stdout || !strings.Contains(run.stderr, "samples   faults ") {
		t.Errorf("text %q, without samples %q\n%s", run.stdout, plain.stdout, run.stderr)
	}
	rows, use := traceRows(t, run.dirs[0])
	regions := regionIDs(t, run.dirs[0])
	phases, kinds := map[string]int{}, map[string]int{}
	for _, r := range rows {
		phases[r.phase]++
		kinds[r.kind]++
		if r.region >= 0 && !regions[r.region] || r.addr <= 0 || r.ts < 1e18 ||
			(r.collector == "page") != (r.window > 0) {
			t.Errorf("%+v", r)
		}
	}
	if phases["weight_load"] == 0 || phases["generation"] == 0 || phases[""] > 0 || kinds["code"] == 0 ||
		kinds["runtime"] == 0 || kinds["kv_cache"] == 0 || kinds["activation"]+kinds["compute_buffer"] == 0 {
		t.Errorf("phases %v, regions %v", phases, kinds)
	}
	if listed := samplesOf(t, run.dirs[0]); listed.Lossy || len(listed.Collectors) != 2 ||
		use.Collectors[0].Samples == 0 || listed.Collectors[0].Rows+listed.Collectors[1].Rows != uint64(len(rows)) {
		t.Errorf("%+v; in the table %+v; %d rows", listed, use, len(rows))
	}
	if v := verifyJSON(t, run.dirs[0]); !v.OK || !v.Sealed {
		t.Errorf("%+v", v)
	}
	text, err := os.ReadFile(filepath.Join(run.dirs[0], rundir.ProcessName))
	if err != nil {
		t.Fatal(err)
	}
	collector := 0
	for line := range strings.Lines(string(text)) {
		var l resource.MonitorLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Collector != nil && l.Collector.RSSBytes > 1<<20 {
			collector++
		}
	}
	if collector == 0 {
		t.Errorf("nothing of the collector's own process in %s", text)
	}
}

// regionIDs are the numbers of a run's regions.
func regionIDs(t *testing.T, dir string) map[int64]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "region_map.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[int64]bool{}
	for group := range r.Groups() {
		v, err := r.Column(group, "region_id")
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range v.Ints {
			ids[id] = true
		}
	}
	return ids
}

// cellRow is a cell of a cache that was written, by TestWrittenPages.
type cellRow struct{ layer, cell, pos int64 }

// cellsOf reads which cells were written, of a run with --tap-kv-block 1.
func cellsOf(t *testing.T, dir string) (cells map[string][]cellRow) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "kv_block_lifecycle.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	cells = map[string][]cellRow{}
	for group := range r.Groups() {
		numbers := map[string]table.Values{}
		for _, name := range []string{"layer", "cell_start", "pos_start"} {
			if numbers[name], err = r.Column(group, name); err != nil {
				t.Fatal(err)
			}
		}
		parts, err := r.Column(group, "kv")
		if err != nil {
			t.Fatal(err)
		}
		for i := range parts.Valid {
			cells[parts.Texts[i]] = append(cells[parts.Texts[i]], cellRow{numbers["layer"].Ints[i],
				numbers["cell_start"].Ints[i], numbers["pos_start"].Ints[i]})
		}
	}
	return cells
}

// TestWrittenPages: token by token, every page of a cache that holds a written cell was written, and no other page
// of a cache. The other witness is --tap-kv, which knows which cells each token writes.
func TestWrittenPages(t *testing.T) {
	model := synthetic(t, "llama", gguf.F16, func(c *synth.Config) {
		c.Layers, c.Width, c.FF, c.Seed = 2, 512, 512, 78
	})
	run := llamatap(t, "llama-completion", "--tap-samples", "pages", "--tap-kv", "--tap-kv-block", "1", "-m", model,
		"-p", "One two three", "-n", "9", "-no-cnv", "--temp", "0",
		"--no-warmup", "-t", "1", "-c", "256", "-fa", "on", "--ignore-eos").good(t)
	rows, _ := traceRows(t, run.dirs[0])
	caches := cacheRegions(t, run.dirs[0])
	written := map[[2]int64]bool{} // token, page
	prompt := int64(1 << 40)
	for _, r := range rows {
		if r.kind != "kv_cache" {
			continue
		}
		if r.phase != "generation" || r.collector != "page" || r.op != "write" || r.exec < 0 {
			t.Errorf("%+v", r)
		}
		for page := r.addr >> 12; page < (r.addr+r.size)>>12; page++ {
			written[[2]int64{r.token, page}] = true
		}
		if r.token >= 0 {
			prompt = min(prompt, r.token)
		}
	}
	expected := map[[2]int64]bool{}
	cells := cellsOf(t, run.dirs[0])
	for part, all := range cells {
		for _, c := range all {
			region, ok := caches[[2]string{part, fmt.Sprint(c.layer)}]
			if !ok {
				t.Fatalf("no cache %s of layer %d", part, c.layer)
			}
			token := c.pos
			if token < prompt {
				token = -1 // of a prompt's many tokens it is unknown which
			}
			perCell := region.size / 256
			first, last := region.start+c.cell*perCell, region.start+(c.cell+1)*perCell-1
			for page := first >> 12; page <= last>>12; page++ {
				// a page of two caches is of none
				if page<<12 >= region.start && (page+1)<<12 <= region.start+region.size {
					expected[[2]int64{token, page}] = true
				}
			}
		}
	}
	for at := range expected {
		if !written[at] {
			t.Errorf("token %d wrote a cell in page %#x, which was not found written", at[0], at[1])
		}
	}
	for at := range written {
		if !expected[at] {
			t.Errorf("page %#x was found written at token %d, which wrote no cell there", at[1], at[0])
		}
	}
	use := samplesOf(t, run.dirs[0])
	if pages := use.Collectors[0].Pages; len(expected) < 30 || use.Lossy || pages == nil || pages.Scans < 18 ||
		pages.Unseen != 0 {
		t.Errorf("%d pages expected; %+v", len(expected), use)
	}
}

// TestLedgerAgainstWrittenPages: graph by graph, every page of a cache that the ledger says was written was found
// written, and no other page of a cache.
func TestLedgerAgainstWrittenPages(t *testing.T) {
	for _, attention := range []string{"on", "off"} { // without it values lie transposed: a cell is in many pages
		model := synthetic(t, "llama", gguf.F16, func(c *synth.Config) {
			c.Layers, c.Width, c.FF, c.Seed = 2, 512, 512, 78
		})
		run := llamatap(t, "llama-completion", "--tap-samples", "pages", "--tap-ledger", "rows", "-m", model,
			"-p", "One two three", "-n", "6", "-no-cnv", "--temp", "0",
			"--no-warmup", "-t", "1", "-c", "256", "-fa", attention, "--ignore-eos").good(t)
		rows, _ := traceRows(t, run.dirs[0])
		whole := map[int64]bool{} // pages that one cache has for itself
		for _, c := range cacheRegions(t, run.dirs[0]) {
			for page := (c.start + 4095) >> 12; (page+1)<<12 <= c.start+c.size; page++ {
				whole[page] = true
			}
		}
		said, found := map[[2]int64]bool{}, map[[2]int64]bool{} // graph, page
		for _, r := range rows {
			if r.kind != "kv_cache" || r.op != "write" || r.exec < 0 {
				continue
			}
			to, pieces := said, max(r.pieces, 1)
			if r.collector == "page" {
				to = found
			}
			for k := range pieces {
				first := r.addr + k*max(r.stride, 0)
				for page := first >> 12; page <= (first+r.size/pieces-1)>>12; page++ {
					if whole[page] {
						to[[2]int64{r.exec, page}] = true
					}
				}
			}
		}
		missing, more := 0, 0
		for at := range said {
			if !found[at] {
				missing++
			}
		}
		for at := range found {
			if !said[at] {
				more++
			}
		}
		if missing > 0 || more > 0 || len(said) < 20 {
			t.Errorf("flash attention %s: of %d pages that the ledger says were written %d were not found written; "+
				"%d others were", attention, len(said), missing, more)
		}
	}
}

// cacheRegions are a run's caches by part and layer.
func cacheRegions(t *testing.T, dir string) map[[2]string]regionRow {
	t.Helper()
	rows, _ := regionRows(t, dir)
	caches := map[[2]string]regionRow{}
	for _, r := range rows {
		if r.kind == "kv_cache" {
			part, layer, _ := strings.Cut(strings.TrimPrefix(r.tensor, "cache_"), "_l")
			caches[[2]string{part, layer}] = r
		}
	}
	return caches
}

// TestSamplesRefused: what is not available is reported with the remedy, before the model runs; with another collector
// in its place it runs.
func TestSamplesRefused(t *testing.T) {
	if set, err := sample.Open(sample.Options{Choices: [][]string{{"perf"}}, PID: os.Getpid()},
		sample.NewQueue(t.TempDir())); err == nil {
		set.Close()
		testenv.Beyond(t, "a machine without a PMU that samples memory", "this one has one")
	}
	refused := llamatap(t, slices.Concat([]string{"run", "--tap-samples", "perf"}, generate(3))...)
	if refused.status != 1 || refused.stdout != "" || len(refused.dirs) != 0 ||
		!oneLine(refused.stderr, "--tap-samples perf", "perf:faults") {
		t.Errorf("status %d, %q, runs %v\n%s", refused.status, refused.stdout, refused.dirs, refused.stderr)
	}
	run := llamatap(t, slices.Concat([]string{"run", "--tap-samples", "perf:faults"}, generate(3))...).good(t)
	if use := samplesOf(t, run.dirs[0]); len(use.Collectors) != 1 || use.Collectors[0].Collector != "faults" ||
		!strings.HasPrefix(use.Collectors[0].Notes[0], "perf: ") {
		t.Errorf("%+v", use)
	}
	if !strings.Contains(run.stderr, "--tap-samples faults: perf: ") {
		t.Errorf("the fallback from perf to page faults is not reported:\n%s", run.stderr)
	}
}

// TestSamplesKilled: a model that is killed leaves a sealed run with what was sampled; one whose collector is
// killed goes on to its end, though it waits for it graph by graph.
func TestSamplesKilled(t *testing.T) {
	tap := append([]string{"exec", "--tap-samples", "faults,pages"}, everything...)
	g := begin(t, slices.Concat(tap, []string{"--", "llama-completion", "-no-cnv", "-m", testenv.Model(t)}, endless)...)
	model := g.model(t)
	unix.Kill(model, unix.SIGKILL)
	g.wait(t)
	dirs := runDirs(t, g.out)
	if len(dirs) != 1 {
		t.Fatalf("runs %v\n%s", dirs, g.stderr.String())
	}
	if rows, _ := traceRows(t, dirs[0]); len(rows) == 0 || metadata(t, dirs[0]).Exit.Signal != "SIGKILL" {
		t.Errorf("%d rows; %+v", len(rows), metadata(t, dirs[0]).Exit)
	}
	program, backends := testenv.Greedy(t, false)
	want := plain(t, program, testenv.Model(t), backends, "60").stdout
	g = begin(t, append(tap, "--", program, testenv.Model(t), backends, "60")...)
	model = g.model(t)
	unix.Kill(g.cmd.Process.Pid, unix.SIGKILL)
	g.untilGone(t, model)
	if g.stdout.String() != want {
		t.Errorf("without its collector it wrote %q, want %q", g.stdout.String(), want)
	}
}

// TestSamplesOnFullDisk: the program goes on, the run is sealed with what there was room for, and what was lost is
// counted.
func TestSamplesOnFullDisk(t *testing.T) {
	testenv.Slow(t)
	whole := llamatap(t, slices.Concat([]string{"run", "--tap-samples", "faults"}, generate(12))...).good(t)
	sealed := 0
	for _, kib := range []int{120, 260, 400} {
		disk := smallDisk(t, fmt.Sprint(kib, "k"))
		o := llamatapIn(t, disk, slices.Concat([]string{"run", "--tap-samples", "faults", "--tap-min-free", "0"},
			generate(12))...)
		if o.stdout != whole.stdout || o.status != 3 || !strings.Contains(o.stderr, "is full; free room there") {
			t.Errorf("%d KiB: status %d, text %q\n%s", kib, o.status, o.stdout, o.stderr)
		}
		for _, dir := range o.dirs {
			if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil {
				sealed++
				rows, _ := traceRows(t, dir)
				if use := samplesOf(t, dir); uint64(len(rows))+use.Lost() != use.Collectors[0].Samples ||
					len(rows) == 0 && use.Lost() == 0 {
					t.Errorf("%d KiB: %d rows of %+v", kib, len(rows), use)
				}
			}
		}
	}
	if sealed == 0 {
		t.Error("no disk holds a sealed run")
	}
}

package tensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"github.com/llamatap/llamatap/store/table"
)

const tokens = 6

// fill records tokens of one tensor each into a directory and seals it.
func fill(t testing.TB, d *rundir.Dir) {
	t.Helper()
	fillFrom(t, d, 0)
}

// fillFrom fills a segment whose tokens begin at an index.
func fillFrom(t testing.TB, d *rundir.Dir, first int64) {
	t.Helper()
	path := filepath.Join(d.Path(), rundir.StreamName)
	w, err := stream.Create(path, stream.Options{Workers: 1, Codec: codec.LZ4})
	check(t, err)
	names, err := rundir.NewTokensWriter(d)
	check(t, err)
	for i := range int32(tokens) {
		row := label.Row{Index: first + int64(i), Token: 100 + i%4, Pos: i, Seqs: []int32{0}, Phase: label.PhaseDecode,
			Output: true, Request: label.RequestUnknown}
		check(t, w.AppendExecution(&stream.Execution{Exec: uint64(i), Phase: label.PhaseDecode, TokenFirst: first + int64(i),
			Rows: []label.Row{row}}))
		data := make([]byte, 0, 32)
		for j := range 8 {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(int(i)*8+j)))
		}
		check(t, w.Append(&stream.Packet{Name: "l_out-0", Node: "l_out-0", Op: "ADD", Occurrence: 1,
			Rows: label.RowsTokens, RowDim: 1,
			Exec: uint64(i), Phase: label.PhaseDecode, NE: [4]int64{8, 1, 1, 1}, TokenFirst: first + int64(i),
			TokenCount: 1},
			data, nil))
		check(t, w.Commit())
		text := rundir.TokenRecord{Text: string(rune('a' + i%4))}
		check(t, names.Append(tokenRecord(0, &row, text)))
	}
	check(t, w.Close())
	data, index := w.Sums()
	d.AddSum(rundir.StreamName, data.Size, data.SHA256)
	d.AddSum(rundir.StreamName+stream.IndexSuffix, index.Size, index.SHA256)
	check(t, names.Close(time.Second))
	check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion, Created: time.Now(),
		RunID: d.ID(),
		Model: rundir.Model{Name: "m"}, Losses: []rundir.Loss{}, Account: account(tokens),
		Streams: []rundir.Stream{{Name: rundir.StreamName, Codec: "lz4", DType: "f16"}}}))
	check(t, d.Seal())
}

func sealed(t testing.TB) string {
	t.Helper()
	d, err := rundir.Create(t.TempDir(), "m", time.Now())
	check(t, err)
	fill(t, d)
	return d.Path()
}

// change rewrites a file of a run.
func change(t testing.TB, dir, name string, f func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path, f(bytes.Clone(data)), 0o600))
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[(at+len(b))%len(b)] ^= 1; return b }
}

func cut(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }

func remove(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		check(t, os.Remove(filepath.Join(dir, name)))
	}
}

// Whatever is done to a run, a repair leaves one that is sealed, in which nothing is damaged that can be made
// whole, and whose values, tokens and texts are those that were recorded; what is gone counts as lost.
func TestRepair(t *testing.T) {
	const idx = rundir.StreamName + stream.IndexSuffix
	for _, c := range []struct {
		name            string
		damage          func(t *testing.T, dir string)
		packets, tokens int
		texts           int
		ok              bool   // nothing is lost
		says            string // among what the repair states
	}{
		{"killed", func(t *testing.T, dir string) {
			remove(t, dir, rundir.ManifestName, rundir.MetadataName, rundir.TokensName)
			change(t, dir, idx, cut(150))
		}, tokens - 1, tokens - 1, 0, false, "had no end"},
		{"killed behind the last commit", func(t *testing.T, dir string) {
			remove(t, dir, rundir.ManifestName, rundir.MetadataName, rundir.TokensName)
			size := 0
			change(t, dir, idx, func(b []byte) []byte {
				size = int(binary.LittleEndian.Uint32(b[len(b)-8:]))
				return b[:len(b)-size]
			})
		}, tokens, tokens, 0, true, "had no end"},
		{"only unsealed", func(t *testing.T, dir string) { remove(t, dir, rundir.ManifestName) }, tokens, tokens,
			tokens, true, "no manifest.json"},
		{"manifest", func(t *testing.T, dir string) { change(t, dir, rundir.ManifestName, flip(0)) }, tokens, tokens,
			tokens, true, "no manifest.json"},
		{"index", func(t *testing.T, dir string) { change(t, dir, idx, flip(400)) }, tokens, tokens, -1, false,
			"corrupt"},
		{"index gone", func(t *testing.T, dir string) { remove(t, dir, idx) }, tokens, 0, 0, false,
			"made from the stream"},
		{"payload", func(t *testing.T, dir string) { change(t, dir, rundir.StreamName, flip(-2)) }, tokens, tokens,
			tokens, false, "cannot be read of the stream"},
		{"stream cut", func(t *testing.T, dir string) { change(t, dir, rundir.StreamName, cut(1)) }, tokens - 1,
			tokens - 1, tokens - 1, false, "last commit"},
		{"tokens cut", func(t *testing.T, dir string) { change(t, dir, rundir.TokensName, cut(100)) }, tokens, tokens,
			0, true, "made from the index"},
		{"part files", func(t *testing.T, dir string) {
			remove(t, dir, rundir.ManifestName)
			for _, name := range []string{rundir.ManifestName, rundir.MetadataName, rundir.TokensName,
				rundir.StreamName + ".idx"} {
				check(t, os.WriteFile(filepath.Join(dir, "."+name+".part"), []byte("half"), 0o600))
			}
		}, tokens, tokens, tokens, true, "no manifest.json"},
		{"tokens of more than the index", func(t *testing.T, dir string) {
			remove(t, dir, rundir.ManifestName)
			change(t, dir, rundir.TokensName, func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"token_index": 2,`), []byte(`"token_index": 200,`), 1)
			})
		}, tokens, tokens, tokens, true, "made from the index"},
		{"run_id", func(t *testing.T, dir string) {
			m, err := rundir.ReadManifest(dir)
			check(t, err)
			m.RunID = "run_20010101_000000_aaaa"
			text, err := m.Encode()
			check(t, err)
			check(t, os.WriteFile(filepath.Join(dir, rundir.ManifestName), text, 0o600))
			if v, err := Verify(dir); err != nil || v.OK {
				t.Errorf("another run_id is not found: %+v, %v", v, err)
			}
		}, tokens, tokens, tokens, true, ""},
		{"metadata", func(t *testing.T, dir string) { change(t, dir, rundir.MetadataName, flip(0)) }, tokens, tokens,
			tokens, true, "made anew with what is certain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sealed(t)
			c.damage(t, dir)
			what, err := Repair(dir, "test")
			check(t, err)
			if !strings.Contains(strings.Join(what, "\n"), c.says) {
				t.Errorf("it says %q", what)
			}
			v, err := Verify(dir)
			check(t, err)
			if v.Sealed != true || v.Packets != c.packets || c.name != "index" && v.Tokens != int64(c.tokens) ||
				v.OK != c.ok {
				t.Errorf("%+v", v)
			}
			for _, f := range v.Findings {
				if f.Kind == Unsealed || f.Kind == Damage && c.name != "payload" {
					t.Errorf("still: %s", f.What)
				}
			}
			checkValues(t, dir)
			if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
				t.Errorf("left: %q, %v", left, err)
			}
			if texts := textsIn(t, dir); c.texts >= 0 && texts != c.texts {
				t.Errorf("%d tokens have their text, want %d", texts, c.texts)
			}
			m, err := rundir.ReadMetadata(dir)
			if err != nil || len(m.Repaired) != 1 || m.Lossy == c.ok || m.RunID != filepath.Base(dir) {
				t.Errorf("metadata %+v, %v", m, err)
			}
			if a := m.Account; a != nil && !strings.HasPrefix(c.name, "index") &&
				(a.Captured.Packets != uint64(c.packets) || a.Captured.Packets+a.LostTotal().Packets != tokens) {
				t.Errorf("account %+v", a)
			}
			if c.name == "payload" {
				return // stays damaged
			}
			if again, err := Repair(dir, "test"); err != nil || len(again) > 0 {
				t.Errorf("a second repair: %q, %v", again, err)
			}
		})
	}
}

// checkValues compares every value that can be read with what was recorded.
func checkValues(t *testing.T, dir string) {
	t.Helper()
	r, err := stream.Open(filepath.Join(dir, rundir.StreamName))
	check(t, err)
	defer r.Close()
	at := 0
	for i, p := range r.Packets() {
		values, err := r.Float32(p, nil)
		if errors.Is(err, stream.ErrCorrupt) {
			at++
			continue
		}
		check(t, err)
		for j, v := range values {
			if int(v) != at*8+j {
				t.Fatalf("packet %d holds %v", i, values)
			}
		}
		if len(values) != 8 || p.Name != "l_out-0" {
			t.Errorf("packet %d: %q of %d", i, p.Name, len(values))
		}
		at++
	}
}

// textsIn counts the tokens that have a text, which must be their own.
func textsIn(t *testing.T, dir string) (n int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, rundir.TokensName))
	check(t, err)
	var file struct{ Tokens []rundir.TokenRecord }
	check(t, json.Unmarshal(data, &file))
	for _, token := range file.Tokens {
		if token.ID != 100+int32(token.Index%4) || token.Text != "" && token.Text != string(rune('a'+token.Index%4)) {
			t.Errorf("token %+v", token)
		}
		if token.Text != "" {
			n++
		}
	}
	return n
}

func TestRepairNothing(t *testing.T) {
	dir := sealed(t)
	before, err := os.ReadFile(filepath.Join(dir, rundir.ManifestName))
	check(t, err)
	what, err := Repair(dir, "test")
	after, _ := os.ReadFile(filepath.Join(dir, rundir.ManifestName))
	if err != nil || len(what) > 0 || !bytes.Equal(before, after) {
		t.Errorf("%q, %v", what, err)
	}
}

// TestRepairedError: the metadata have the largest error of the tensors that are left, or none where it is not known.
func TestRepairedError(t *testing.T) {
	const idx = rundir.StreamName + stream.IndexSuffix
	for name, damage := range map[string]func(t *testing.T, dir string){
		"cut":        func(t *testing.T, dir string) { change(t, dir, idx, cut(150)) },
		"index gone": func(t *testing.T, dir string) { remove(t, dir, idx) },
	} {
		d, err := rundir.Create(t.TempDir(), "m", time.Now())
		check(t, err)
		w, err := stream.Create(filepath.Join(d.Path(), rundir.StreamName), stream.Options{Workers: 1, Codec: codec.Q,
			Bound: codec.Bound{Error: 0.1}})
		check(t, err)
		for exec := range 3 { // the last one has the largest error
			check(t, w.AppendExecution(&stream.Execution{Exec: uint64(exec), Phase: label.PhaseDecode}))
			data := make([]byte, 0, 256)
			for k := range 64 {
				x := float32(k) / 64
				if exec < 2 {
					x = float32(k % 2)
				}
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
			}
			check(t, w.Append(&stream.Packet{Name: "l_out-0", Exec: uint64(exec), Phase: label.PhaseDecode,
				NE: [4]int64{64, 1, 1, 1}}, data, nil))
			check(t, w.Commit())
		}
		check(t, w.Close())
		worst := w.Stats().Error
		check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion, RunID: d.ID(),
			Created: time.Now(), Losses: []rundir.Loss{}, Streams: []rundir.Stream{{Name: rundir.StreamName, Codec: "q",
				DType: "f32", MaxAbs: &worst.MaxAbs, NRMSE: &worst.NRMSE}}}))
		unlock(t, d)
		damage(t, d.Path())
		_, err = Repair(d.Path(), "test")
		check(t, err)
		m, err := rundir.ReadMetadata(d.Path())
		check(t, err)
		got := m.Streams[0]
		if name == "index gone" {
			if got.MaxAbs != nil || got.NRMSE != nil {
				t.Errorf("%s: errors %v, %v", name, *got.MaxAbs, *got.NRMSE)
			}
			continue
		}
		if got.Packets != 2 || got.MaxAbs == nil || *got.MaxAbs >= worst.MaxAbs || *got.NRMSE >= worst.NRMSE {
			t.Errorf("%s: %d packets with errors %v, %v; of all of them %+v", name, got.Packets, got.MaxAbs, got.NRMSE,
				worst)
		}
	}
}

// Segments are repaired one by one, and the run is sealed around them.
func TestRepairSegments(t *testing.T) {
	d, err := rundir.Create(t.TempDir(), "m", time.Now())
	check(t, err)
	for n := range 2 {
		s, err := d.Segment(n + 1)
		check(t, err)
		fill(t, s)
	}
	second := filepath.Join(d.Path(), rundir.SegmentName(2))
	remove(t, second, rundir.ManifestName, rundir.TokensName)
	if _, err := Repair(d.Path(), "test"); !errors.Is(err, rundir.ErrInUse) {
		t.Fatalf("a run that is being written: %v", err)
	}
	unlock(t, d)
	what, err := Repair(d.Path(), "test")
	check(t, err)
	v, err := Verify(d.Path())
	check(t, err)
	if !v.Sealed || v.Packets != 2*tokens || !strings.Contains(strings.Join(what, "\n"), rundir.SegmentName(2)+": ") {
		t.Errorf("%q: %+v", what, v)
	}
	for _, f := range v.Findings {
		if f.Kind == Damage || f.Kind == Unsealed {
			t.Errorf("still: %s", f.What)
		}
	}
}

// TestRepairKilledSegments: a segment whose collector was killed has the metadata of its run, as far as they hold
// for all segments, and one that was only begun is removed.
func TestRepairKilledSegments(t *testing.T) {
	d, err := rundir.Create(t.TempDir(), "m", time.Now())
	check(t, err)
	check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion, RunID: d.ID(),
		Created: time.Now(), Command: []string{"llamatap", "run"},
		Model: rundir.Model{Name: "of the run"}, Losses: []rundir.Loss{}}))
	s, err := d.Segment(1)
	check(t, err)
	fill(t, s)
	remove(t, s.Path(), rundir.ManifestName, rundir.MetadataName)
	_, err = d.Segment(2)
	check(t, err)
	unlock(t, d)
	_, err = Repair(d.Path(), "test")
	check(t, err)
	if v, err := Verify(d.Path()); err != nil || !v.Sealed || v.Packets != tokens {
		t.Errorf("%+v, %v", v, err)
	} else {
		for _, f := range v.Findings {
			if f.Kind == Damage || f.Kind == Unsealed {
				t.Errorf("still: %s", f.What)
			}
		}
	}
	m, err := rundir.ReadMetadata(s.Path())
	if err != nil || m.Model.Name != "of the run" || len(m.Command) != 2 ||
		m.RunID != d.ID()+"/"+rundir.SegmentName(1) {
		t.Errorf("metadata of the segment: %+v, %v", m, err)
	}
	if names, err := rundir.Segments(d.Path()); err != nil || len(names) != 1 {
		t.Errorf("segments %q, %v", names, err)
	}
}

// TestRepairRotatedSegments: how many tokens a run had given back follows from where the next segment begins, whether
// that one was sealed or is the one in which the collector was killed.
func TestRepairRotatedSegments(t *testing.T) {
	for _, lost := range []string{rundir.ManifestName, rundir.MetadataName} {
		d, err := rundir.Create(t.TempDir(), "m", time.Now())
		check(t, err)
		check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion, RunID: d.ID(),
			Created: time.Now(), Losses: []rundir.Loss{},
			Config: map[string]any{"settings": map[string]any{"max_disk": map[string]any{"value": "4M:rotate"}}}}))
		s, err := d.Segment(3)
		check(t, err)
		fillFrom(t, s, 2*tokens)
		remove(t, s.Path(), lost)
		unlock(t, d)
		what, err := Repair(d.Path(), "test")
		check(t, err)
		m, err := rundir.ReadMetadata(d.Path())
		check(t, err)
		if r := m.Rotated; r == nil || r.Segments != 2 || r.Tokens != 2*tokens {
			t.Errorf("without %s: rotated %+v, %q", lost, m.Rotated, what)
		}
	}
}

// TestRepairTidies: of a run that is finished, sealed and whole a repair removes what a killed process has left,
// and nothing else.
func TestRepairTidies(t *testing.T) {
	dir := sealed(t)
	name := filepath.Join(dir, rundir.StreamName+rundir.CheckpointSuffix)
	c := rundir.Checkpoint{Run: rundir.CheckpointRun{Dir: dir}}
	check(t, c.Write(name))
	check(t, os.Mkdir(filepath.Join(dir, rundir.StateFolder), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, ".x.part"), nil, 0o600))
	killed := filepath.Join(filepath.Dir(filepath.Dir(dir)), ".state-123")
	check(t, os.Mkdir(killed, 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
	what, err := Repair(dir, "test")
	if err != nil || len(what) != 3 {
		t.Errorf("%q, %v", what, err)
	}
	for _, path := range []string{name, filepath.Join(dir, rundir.StateFolder), filepath.Join(dir, ".x.part"), killed} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "notes.txt")); err != nil {
		t.Error(err)
	}
	if again, err := Repair(dir, "test"); err != nil || len(again) > 0 {
		t.Errorf("a second repair: %q, %v", again, err)
	}
}

// unlock seals a directory, and takes the seal away: it is as a writer leaves it that has ended.
func unlock(t *testing.T, d *rundir.Dir) {
	t.Helper()
	check(t, d.Seal())
	remove(t, d.Path(), rundir.ManifestName)
}

// TestRepairTable: a run that recorded accesses alone, and was ended from outside, keeps the parts that were
// complete, is sealed, and says that it lacks something.
func TestRepairTable(t *testing.T) {
	d, err := rundir.Create(t.TempDir(), "m", time.Now())
	check(t, err)
	schema := table.Schema{Metadata: [][2]string{{table.VersionKey, table.Version}},
		Columns: []table.Column{{Name: "ts_ns", Kind: table.Int64}}}
	parts, err := table.NewParts(d, rundir.TraceName, schema, table.PartOptions{Rows: 10})
	check(t, err)
	b := table.NewBatch(schema)
	for i := range 25 {
		b.Reset()
		b.Int(0, int64(i))
		check(t, b.EndRow())
		check(t, parts.Append(b))
	}
	check(t, parts.Close())
	unlock(t, d)
	remove(t, d.Path(), "trace.002.parquet") // as a kill leaves it: the last part was not complete, nothing is sealed
	v, err := Verify(d.Path())
	if err != nil || v.OK || v.Sealed || v.Findings[0].Kind != Unsealed {
		t.Fatalf("%+v, %v", v, err)
	}
	what, err := Repair(d.Path(), "test")
	if err != nil || !strings.Contains(strings.Join(what, "\n"), "was not completed, and holds 20 rows") {
		t.Errorf("%q, %v", what, err)
	}
	v, err = Verify(d.Path())
	if err != nil || !v.Sealed || v.OK || v.Files != 3 {
		t.Fatalf("%+v, %v", v, err)
	}
	kinds := map[FindingKind]int{}
	for _, f := range v.Findings {
		kinds[f.Kind]++
	}
	if kinds[Lost] != 1 || kinds[Note] != 1 || len(kinds) != 2 {
		t.Errorf("%+v", v.Findings)
	}
}

// TestRepairChangedTable: a table that was damaged, or tokens that no index has, are not whole because there is a new
// manifest.
func TestRepairChangedTable(t *testing.T) {
	for _, name := range []string{rundir.RegionsName, rundir.TokensName} {
		d, err := rundir.Create(t.TempDir(), "m", time.Now())
		check(t, err)
		file, err := d.Create(name)
		check(t, err)
		_, err = file.Write([]byte("a table"))
		check(t, errors.Join(err, file.Close(), d.WriteJSON(rundir.MetadataName,
			rundir.Metadata{Version: rundir.MetadataVersion, Created: time.Now(), Ended: time.Now()}), d.Seal()))
		check(t, os.WriteFile(filepath.Join(d.Path(), name), []byte("another"), 0o600))
		what, err := Repair(d.Path(), "test")
		check(t, err)
		if said := strings.Join(what, "\n"); strings.Contains(said, "made anew") {
			t.Errorf("%s: %s", name, said)
		}
		if v, err := Verify(d.Path()); err != nil || !v.Sealed || v.OK {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}

// TestRepairLines: files of lines of a run that was killed end in whole lines after a repair, at whatever byte of
// its last line each had ended, and the run is lossy. Files of others stay as they are.
func TestRepairLines(t *testing.T) {
	const before, last = "{\"n\":1}\n", "{\"event\":\"größe\",\"n\":2}\n"
	names := []string{
		"resource.jsonl", "resource.12.jsonl", "process.jsonl", "host_waits.jsonl", "host_faults.jsonl",
		"block_io.jsonl", "system_metrics.jsonl",
		"llm_prof.jsonl", "host_self.jsonl", "markers.jsonl", "control.jsonl",
	}
	for end := range len(last) + 1 {
		dir := sealed(t)
		remove(t, dir, rundir.ManifestName)
		check(t, os.WriteFile(filepath.Join(dir, "notes.jsonl"), []byte("half"), 0o600))
		for _, name := range names {
			check(t, os.WriteFile(filepath.Join(dir, name), []byte(before+last[:end]), 0o600))
		}
		what, err := Repair(dir, "test")
		check(t, err)
		want := before
		if end >= len(last)-1 {
			want += last
		}
		for _, name := range names {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				t.Errorf("%s with %d bytes of its last line is %q, %v", name, end, got, err)
			}
			if said := strings.Contains(strings.Join(what, "\n"), name+": the last "); said != (end > 0 &&
				end < len(last)-1) {
				t.Errorf("%d bytes of the last line: %q", end, what)
			}
		}
		if got, err := os.ReadFile(filepath.Join(dir, "notes.jsonl")); err != nil || string(got) != "half" {
			t.Errorf("notes.jsonl is %q, %v", got, err)
		}
		v, err := Verify(dir)
		check(t, err)
		if v.OK || !v.Sealed || len(v.Findings) == 0 ||
			slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Kind == Damage }) {
			t.Errorf("%+v", v)
		}
		if again, err := Repair(dir, "test"); err != nil || len(again) > 0 {
			t.Errorf("a second repair: %q, %v", again, err)
		}
	}
}

// TestRepairParts: of a log in parts, a process that was killed had ended all but the newest.
func TestRepairParts(t *testing.T) {
	dir := sealed(t)
	remove(t, dir, rundir.ManifestName)
	remove(t, dir, rundir.MetadataName)
	for _, name := range []string{"resource.9.jsonl", "resource.10.jsonl", "resource.jsonl", "process.jsonl"} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte("{}\n"), 0o600))
	}
	what, err := Repair(dir, "test")
	check(t, err)
	const want = "had ended process.jsonl, resource.10.jsonl:"
	if all := strings.Join(what, "\n"); !strings.Contains(all, want) {
		t.Errorf("%s\nlacks %q", all, want)
	}
}

// TestRepairSealedLines: a run that was sealed was not killed, whatever became of its metadata since. What these said
// of its lines is not known any more.
func TestRepairSealedLines(t *testing.T) {
	dir := sealed(t)
	remove(t, dir, rundir.ManifestName)
	check(t, os.WriteFile(filepath.Join(dir, rundir.EventsName), []byte("{}\n"), 0o600))
	_, err := Repair(dir, "test")
	check(t, err)
	remove(t, dir, rundir.MetadataName)
	what, err := Repair(dir, "test")
	check(t, err)
	said := strings.Join(what, "\n")
	if !strings.Contains(said, "metadata.json had said whether lines of resource.jsonl were lost") ||
		strings.Contains(said, "was killed") {
		t.Error(said)
	}
	if v, err := Verify(dir); err != nil || v.OK || !v.Sealed {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestRepairAbandoned: a run whose process was killed before it had metadata is sealed, as one that lacks everything.
func TestRepairAbandoned(t *testing.T) {
	for _, left := range []string{"", "." + rundir.MetadataName + ".part"} {
		dir := filepath.Join(t.TempDir(), "m", "run_20260102_030405_abcd")
		check(t, os.MkdirAll(dir, 0o700))
		if left != "" {
			check(t, os.WriteFile(filepath.Join(dir, left), []byte("{"), 0o600))
		}
		if v, err := Verify(dir); err != nil || v.OK || v.Sealed {
			t.Fatalf("%+v, %v", v, err)
		}
		_, err := Repair(dir, "test")
		check(t, err)
		if v, err := Verify(dir); err != nil || v.OK || !v.Sealed || v.Findings[0].Kind == Damage {
			t.Errorf("%+v, %v", v, err)
		}
		if found, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(found) > 0 {
			t.Errorf("left: %q, %v", found, err)
		}
	}
	runs := filepath.Join(t.TempDir(), "run_all") // a folder of runs
	check(t, os.MkdirAll(filepath.Join(runs, "m"), 0o700))
	if _, err := Repair(runs, "test"); !errors.Is(err, ErrNotARun) {
		t.Errorf("a folder of runs: %v", err)
	}
}

// TestRepairLostBesideSegments: a table that a segmented run lacks makes it lossy, and verify reports it, though
// each segment is whole.
func TestRepairLostBesideSegments(t *testing.T) {
	d, err := rundir.Create(t.TempDir(), "m", time.Now())
	check(t, err)
	s, err := d.Segment(1)
	check(t, err)
	fill(t, s)
	unlock(t, d)
	check(t, os.WriteFile(filepath.Join(d.Path(), ".trace.parquet.part"), nil, 0o600))
	_, err = Repair(d.Path(), "test")
	check(t, err)
	v, err := Verify(d.Path())
	check(t, err)
	if !v.Sealed || v.OK || !slices.ContainsFunc(v.Findings,
		func(f Finding) bool { return f.Kind == Lost }) {
		t.Errorf("%+v", v)
	}
}

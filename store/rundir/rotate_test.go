package rundir

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPartOf: only files that others of their kind follow can be given back.
func TestPartOf(t *testing.T) {
	for name, want := range map[string]struct {
		table  string
		number int
	}{
		"resource.jsonl": {EventsName, 0}, "resource.12.jsonl": {EventsName, 12},
		"requests.000.parquet": {RequestsName, 0}, "trace.1017.parquet": {TraceName, 1017},
		"requests.parquet": {}, "trace.parquet": {}, "region_map.parquet": {}, "process.jsonl": {}, "control.jsonl": {},
		"resource.0.jsonl": {}, "resource.parquet": {}, "requests.1.parquet": {}, MetadataName: {},
	} {
		table, number, ok := PartOf(name)
		if table != want.table || number != want.number || ok != (want.table != "") {
			t.Errorf("%s is part %d of %q, %v; want %+v", name, number, table, ok, want)
		}
	}
}

// TestOldest gives back parts and segments in the order in which they were ended; the manifest lists what is left.
func TestOldest(t *testing.T) {
	d, err := Create(t.TempDir(), "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string) {
		file, err := d.Create(name)
		if err == nil {
			_, err = file.Write([]byte("0123456789"))
		}
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("region_map.parquet")
	write("requests.000.parquet")
	s, err := d.Segment(1)
	if err == nil {
		err = s.Seal()
	}
	if err == nil {
		err = d.AddSegment(SegmentName(1))
	}
	if err != nil {
		t.Fatal(err)
	}
	write("resource.jsonl")
	before := d.Written()
	for _, want := range []string{"requests.000.parquet", SegmentName(1), "resource.jsonl", ""} {
		name, f := Oldest(d)
		if listed := f.Name; name != want || listed != want && listed != want+"/"+ManifestName {
			t.Fatalf("the oldest is %q, which is listed as %q, want %q", name, listed, want)
		}
		if name != "" {
			err = Remove(d, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(d.Path(), name)); name != "" && err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if got := before - d.Written(); got != 20 {
		t.Errorf("%d bytes of parts were given back, want 20", got)
	}
	if err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(d.Path()); err != nil || !r.Sealed || len(r.Missing)+len(r.Changed)+len(r.Extra) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

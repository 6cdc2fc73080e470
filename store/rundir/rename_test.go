package rundir

import (
	"errors"
	"testing"
)

// TestRename: a closed file gets another name, in the manifest too; what is not there, or would take another's
// place, does not.
func TestRename(t *testing.T) {
	d := create(t)
	put(t, d, "trace.000.parquet", "rows")
	put(t, d, "other", "text")
	for _, c := range [][2]string{{"nothing", "a"}, {"other", "trace.000.parquet"}, {"other", ManifestName},
		{"other", "../a"}} {
		if err := d.Rename(c[0], c[1]); !errors.Is(err, ErrName) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if err := d.Rename("trace.000.parquet", "trace.parquet"); err != nil {
		t.Fatal(err)
	}
	if err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	if err := d.Rename("other", "b"); !errors.Is(err, ErrSealed) {
		t.Errorf("%v", err)
	}
	report, err := Verify(d.Path())
	if err != nil || !report.Sealed || report.Files != 2 ||
		len(report.Missing)+len(report.Changed)+len(report.Extra) > 0 {
		t.Errorf("%+v: %v", report, err)
	}
	m, err := ReadManifest(d.Path())
	if err != nil || len(m.Files) != 2 || m.Files[1].Name != "trace.parquet" {
		t.Errorf("%+v: %v", m, err)
	}
}

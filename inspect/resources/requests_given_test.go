package resources

import (
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// TestGivenBack: what is missing of the rows of requests was given back, with a number where one was counted, or is in
// object storage.
func TestGivenBack(t *testing.T) {
	rotated := &rundir.Rotated{}
	rotated.AddPart(rundir.RequestsName, 40)
	rotated.AddPart(rundir.RequestsName, 2)
	for want, m := range map[string]rundir.Metadata{
		"the rows of 42 earlier requests were given back, in 2 parts":  {Rotated: rotated},
		"2 parts with rows of earlier requests, given back":            {},
		"2 parts with rows of earlier requests, in s3://b/run_1 alone": {Moved: &rundir.Moved{To: "s3://b/run_1"}},
	} {
		d, err := rundir.Create(t.TempDir(), "m", time.Now())
		check(t, err)
		m.Version = rundir.MetadataVersion
		check(t, d.WriteJSON(rundir.MetadataName, m))
		r := &Requests{}
		r.countGivenBack(d.Path(), 2)
		var text strings.Builder
		check(t, r.WriteText(&text, nil, 0))
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in %s", want, text.String())
		}
	}
}

// TestStoredRun describes a run by its list of files as it is described in its directory.
func TestStoredRun(t *testing.T) {
	dir := recorded(t, t.TempDir(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), true, "resource.jsonl",
		"requests.parquet", rundir.ProcessName)
	want, err := ReadRun(dir)
	check(t, err)
	manifest, err := rundir.ReadManifest(dir)
	check(t, err)
	m, err := rundir.ReadMetadata(dir)
	check(t, err)
	files := append(manifest.Files, rundir.File{Name: rundir.ManifestName,
		Size: rundir.SizeOf(dir + "/" + rundir.ManifestName)})
	got := StoredRun("s3://b/"+want.ID, files, &m)
	if got.Path != "s3://b/"+want.ID || got.ID != want.ID || got.State != StateSealed || got.Bytes != want.Bytes ||
		*got.Tokens != *want.Tokens || len(got.Data) != 3 || len(got.Recorders) != len(want.Recorders) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, d := range got.Data { // jq takes no URL
		if of := d.What != "processes"; of != strings.HasSuffix(d.Command, " s3://b/"+want.ID) ||
			!of && d.Command != "" {
			t.Errorf("%+v", d)
		}
	}
	if got := StoredRun("s3://b/run_1", files[:1], nil); got.State != StateUnsealed || got.Tokens != nil ||
		got.Bytes == 0 {
		t.Errorf("%+v", got)
	}
}

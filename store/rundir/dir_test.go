package rundir

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func create(t *testing.T) *Dir {
	t.Helper()
	d, err := Create(t.TempDir(), "gopher-6m", time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func put(t *testing.T, d *Dir, name, text string) {
	t.Helper()
	f, err := d.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestCreate(t *testing.T) {
	out := t.TempDir()
	seen := map[string]bool{}
	for range 20 {
		d, err := Create(out, "../A model/x", time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`^run_20260304_050607_[0-9a-f]{4}$`).MatchString(d.ID()) || seen[d.ID()] {
			t.Errorf("id %q", d.ID())
		}
		seen[d.ID()] = true
		if want := filepath.Join(out, "_A_model_x", d.ID()); d.Path() != want || mode(t, want) != 0o700 ||
			mode(t, filepath.Dir(want)) != 0o700 {
			t.Errorf("path %s, want %s", d.Path(), want)
		}
	}
	file := filepath.Join(out, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(file, "m", time.Now()); err == nil {
		t.Error("a run directory below a file")
	}
}

func TestModelID(t *testing.T) {
	for _, c := range []struct{ name, fileType, want string }{
		{"Qwen3 4B Instruct", "Q4_K_M", "Qwen3_4B_Instruct-Q4_K_M"},
		{"", "Q8_0", "Q8_0"},
		{"gopher", "", "gopher"},
		{"", "", "model"},
		{"../../etc/passwd", "", "_.._etc_passwd"},
		{"größe", "F16", "gr__e-F16"},
	} {
		if got := ModelID(c.name, c.fileType); got != c.want || !filepath.IsLocal(got) {
			t.Errorf("%q, %q: %q, want %q", c.name, c.fileType, got, c.want)
		}
	}
	if got := ModelID(strings.Repeat("x", 1000), "F16"); len(got) > 128 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestFileAppearsWhole(t *testing.T) {
	d := create(t)
	f, err := d.Create("a.txt")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "half of")
	path := filepath.Join(d.Path(), "a.txt")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there before it is whole: %v", err)
	}
	fmt.Fprint(f, " it")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "half of it" || mode(t, path) != 0o600 {
		t.Errorf("%q %v", got, mode(t, path))
	}
}

func TestSealAndVerify(t *testing.T) {
	d := create(t)
	put(t, d, "b.txt", "bee")
	put(t, d, "a.txt", "")
	if err := d.WriteJSON(MetadataName, Metadata{Version: MetadataVersion, Command: []string{"<&>"}}); err != nil {
		t.Fatal(err)
	}
	grown := []byte("grew under its own name")
	if err := os.WriteFile(filepath.Join(d.Path(), "c.stream"), grown, 0o600); err != nil {
		t.Fatal(err)
	}
	d.AddSum("c.stream", int64(len(grown)), sha256.Sum256(grown))
	if r, err := Verify(d.Path()); err != nil || r.Sealed {
		t.Errorf("before the seal: %+v, %v", r, err)
	}
	if err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(d.Path())
	if err != nil || m.RunID != d.ID() || len(m.Files) != 4 ||
		!slices.IsSortedFunc(m.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%+v %v", m, err)
	}
	if r, err := Verify(d.Path()); err != nil || !r.Sealed || r.Files != 4 ||
		len(r.Missing)+len(r.Changed)+len(r.Extra) != 0 {
		t.Errorf("after the seal: %+v, %v", r, err)
	}
	if _, err := d.Create("late"); !errors.Is(err, ErrSealed) {
		t.Errorf("a file after the seal: %v", err)
	}
	if err := d.Seal(); !errors.Is(err, ErrSealed) {
		t.Errorf("a second seal: %v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(d.Path(), MetadataName)); !bytes.Contains(text, []byte(`"<&>"`)) {
		t.Errorf("metadata is\n%s", text)
	}
	if meta, err := ReadMetadata(d.Path()); err != nil || meta.Command[0] != "<&>" {
		t.Errorf("%+v %v", meta, err)
	}
}

func TestVerifyFinds(t *testing.T) {
	d := create(t)
	for _, name := range []string{"size", "content", "gone", "fine"} {
		put(t, d, name, "text of "+name)
	}
	if err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(d.Path(), name) }
	for _, err := range []error{
		os.WriteFile(at("size"), []byte("text of size, and more"), 0o600),
		os.WriteFile(at("content"), []byte("text of Content"), 0o600),
		os.Remove(at("gone")),
		os.WriteFile(at("extra"), nil, 0o600),
		os.Mkdir(at("derived"), 0o700),
		os.WriteFile(at("report.html"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := Verify(d.Path())
	want := Report{Sealed: true, Files: 1, Missing: []string{"gone"}, Changed: []string{"content", "size"},
		Extra: []string{"extra"}, RunID: d.ID()}
	if err != nil || fmt.Sprint(r) != fmt.Sprint(want) {
		t.Errorf("%+v, %v; want %+v", r, err, want)
	}
}

func TestSealRefuses(t *testing.T) {
	d := create(t)
	f, err := d.Create("open")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Seal(); !errors.Is(err, ErrOpen) {
		t.Errorf("with an open file: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	d.AddSum("open", 99, [32]byte{})
	if err := d.Seal(); !errors.Is(err, ErrChanged) {
		t.Errorf("with a file of another size: %v", err)
	}
	d.AddSum("nowhere", 1, [32]byte{})
	d.AddSum("open", 0, sha256.Sum256(nil))
	if err := d.Seal(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with a file that is not there: %v", err)
	}
	if r, err := Verify(d.Path()); err != nil || r.Sealed {
		t.Errorf("%+v %v", r, err)
	}
}

func TestNames(t *testing.T) {
	d := create(t)
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc/x", ManifestName, ".hidden"} {
		if _, err := d.Create(name); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestWriteJSONError(t *testing.T) {
	d := create(t)
	if err := d.WriteJSON("x.json", func() {}); err == nil {
		t.Error("a function as JSON")
	}
	if entries, _ := os.ReadDir(d.Path()); len(entries) != 0 {
		t.Errorf("%v is left", entries)
	}
	if err := d.Seal(); err != nil {
		t.Error(err)
	}
}

// A write that fails leaves nothing that looks finished.
func TestFailedWrite(t *testing.T) {
	d := create(t)
	f, err := d.Create("x")
	if err != nil {
		t.Fatal(err)
	}
	f.(*hashedFile).file.Close()
	if _, err := f.Write([]byte("lost")); err == nil {
		t.Fatal("written to a closed file")
	}
	if f.Close() == nil {
		t.Error("Close returned no error")
	}
	if entries, _ := os.ReadDir(d.Path()); len(entries) != 0 {
		t.Errorf("%v is left", entries)
	}
}

func TestBadManifests(t *testing.T) {
	for name, text := range map[string]string{
		"version": `{"version":2,"files":[]}`,
		"escape":  `{"version":1,"files":[{"name":"../x","size":0,"sha256":""}]}`,
		"json":    `{"version":1,`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ManifestName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, MetadataName), []byte(`{"version":99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadMetadata(dir); err == nil {
		t.Error("metadata of version 99: accepted")
	}
}

// What is not known must not appear as a zero.
func TestMetadataLeavesOut(t *testing.T) {
	b, err := json.Marshal(Metadata{Version: 1, Created: time.Unix(0, 0).UTC(), Losses: []Loss{}})
	if want := `{"version":1,"created":"1970-01-01T00:00:00Z","losses":[],"lossy":false}`; err != nil ||
		string(b) != want {
		t.Errorf("%s %v, want %s", b, err, want)
	}
}

package analyze

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBuiltin: every figure that comes with llamatap has a publication with a year, of which it is said how far it
// was read, and every publication is used.
func TestBuiltin(t *testing.T) {
	c := builtinClasses()
	used := map[string]bool{}
	for i := range c.Classes {
		for _, f := range c.Classes[i].figures() {
			if f.Figure == nil {
				continue
			}
			used[f.Source] = true
			if s := c.Sources[f.Source]; s.Year < 1990 || s.Text == "" || s.Read == "" {
				t.Errorf("%s of %s: %+v", f.key, c.Classes[i].ID, s)
			}
		}
	}
	if len(used) != len(c.Sources) || len(c.Classes) < 6 {
		t.Errorf("%d classes, %d of %d sources are used", len(c.Classes), len(used), len(c.Sources))
	}
	for i := range c.Classes { // what could not be confirmed says so where it is used
		for _, f := range c.Classes[i].figures() {
			if f.Figure != nil && strings.Contains(c.Sources[f.Source].Read, "not confirmed") &&
				!strings.Contains(f.Note, "not confirmed") {
				t.Errorf("%s of %s does not say that it is not confirmed", f.key, c.Classes[i].ID)
			}
		}
	}
	hbm, err := c.Pick([]string{"hbm2"})
	if err != nil || hbm[0].Refresh != Everything || hbm[0].ReadPJ.Value != 3.92 {
		t.Errorf("%+v, %v", hbm, err)
	}
	if _, err := c.Pick([]string{"sram"}); err == nil || !strings.Contains(err.Error(), "hbm2") {
		t.Errorf("a class that is not there: %v", err)
	}
}

const ownFile = `version: 1
sources:
  mine: {text: my own measurement, year: 2026}
classes:
  - id: managed
    retention_s: {value: 3600, source: mine}
    read_pj_per_bit: {value: 1, source: oconnor2017}
  - id: pcm
    name: another PCM
    retention_s: {value: 1, source: mine}
`

// TestLoad: a file adds classes, and puts some in the place of those that are there.
func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(path, []byte(ownFile), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := LoadClasses(path)
	if err != nil {
		t.Fatal(err)
	}
	some, err := c.Pick([]string{"managed", "pcm"})
	if err != nil || some[0].Name != "managed" || some[0].Refresh != Needed || some[1].Name != "another PCM" ||
		some[1].WritePJ != nil {
		t.Errorf("%+v, %v", some, err)
	}
	if len(c.Classes) != len(builtinClasses().Classes)+1 || len(builtinClasses().Sources) == len(c.Sources) {
		t.Errorf("%d classes", len(c.Classes))
	}
	if c, err := LoadClasses(""); err != nil || len(c.Classes) != len(builtinClasses().Classes) {
		t.Errorf("without a file: %v", err)
	}
	if _, err := LoadClasses(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there")
	}
}

// TestWrongFiles: every mistake is reported with its place or its class.
func TestWrongFiles(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"no YAML":     {"classes: [", "f:1:"},
		"unknown key": {strings.Replace(ownFile, "retention_s", "retentoin_s", 1), "f:6:5: unknown field"},
		"text for number": {strings.Replace(ownFile, "3600", "10s", 1),
			`f:6:26: value "10s": write a number, without a unit: write it as docs/MRM_DATA.md says`},
		"no value": {strings.Replace(ownFile, "value: 3600, ", "", 1),
			"class managed: retention_s is 0, or has no value: give one above 0"},
		"no source": {strings.Replace(ownFile, "source: mine", "source: hearsay", 1),
			`class managed: retention_s has the source "hearsay"`},
		"no year":      {strings.Replace(ownFile, ", year: 2026", "", 1), "source mine has no text or no year"},
		"zero":         {strings.Replace(ownFile, "3600", "0", 1), "class managed: retention_s is 0"},
		"infinite":     {strings.Replace(ownFile, "3600", ".inf", 1), "class managed: retention_s is +Inf"},
		"not a number": {strings.Replace(ownFile, "3600", ".nan", 1), "class managed: retention_s is NaN"},
		"too much": {strings.Replace(ownFile, "3600", "1e31", 1),
			"retention_s is 1e+31: give a number above 0, at most 1e30"},
		"twice":  {strings.Replace(ownFile, "id: pcm", "id: managed", 1), "managed stands there twice"},
		"bad id": {strings.Replace(ownFile, "id: managed", "id: Managed!", 1), `class id "Managed!"`},
		"bad refresh": {strings.Replace(ownFile, "id: managed", "id: managed\n    refresh: sometimes", 1),
			"refresh \"sometimes\""},
		"no figure":       {"version: 1\nclasses:\n  - id: x\n", "class x has no figure"},
		"another version": {strings.Replace(ownFile, "version: 1", "version: 2", 1), "version 2"},
		"empty":           {"", "version 0"},
	} {
		_, err := parseClasses("f", []byte(c.file), builtinClasses().Sources)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(ownFile)
	f.Add(string(builtin))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseClasses("f", []byte(text), nil)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		s := example()
		for i := range c.Classes {
			judgeRow([]subject{s}, &c.Classes[i], demandOptions{})
		}
	})
}

package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck: what cannot be read is refused in one line that says why, and what to do.
func TestCheck(t *testing.T) {
	good := Schema{Columns: []Column{{Name: "ts_ns", Kind: Int64}, {Name: "op", Kind: Text, Null: true}},
		Metadata: [][2]string{{VersionKey, "1.7"}}}
	form := Form{Name: "trace", Columns: []Column{{Name: "ts_ns", Kind: Uint64}, {Name: "op", Kind: Text}}}
	make := func(s Schema) []byte {
		var b bytes.Buffer
		out, err := NewParquet(&b, s)
		if err != nil {
			t.Fatal(err)
		}
		rows := NewBatch(s)
		for i, c := range s.Columns {
			if c.Kind == Text {
				rows.Fill(i, rows.Code(i, "x"), 9)
			} else {
				rows.Fill(i, 5, 9)
			}
		}
		if err := errors.Join(rows.EndRows(9), out.Write(rows), out.Close()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	other := func(change func(*Schema)) []byte {
		s := good
		s.Columns = append([]Column(nil), good.Columns...)
		change(&s)
		return make(s)
	}
	whole := make(good)
	for _, c := range []struct {
		name string
		text []byte
		want []string // "": it is good
	}{
		{"good", whole, nil},
		{"empty", nil, []string{"0 bytes", "cut off"}},
		{"short", whole[:11], []string{"11 bytes"}},
		{"cut off", whole[:len(whole)-1], []string{"end is missing", "copy or record it again"}},
		{"without its beginning", whole[4:], []string{"not a Parquet file"}},
		{"text", []byte("region_id,region_type\n1,weight\n"), []string{"not a Parquet file", "give a .parquet file"}},
		{"encrypted", append(bytes.Clone(whole[:len(whole)-4]), "PARE"...), []string{"encrypted"}},
		{"long footer", append(binary.LittleEndian.AppendUint32([]byte("PAR1"), 1<<31), "PAR1"...),
			[]string{"longer than the file"}},
		{"no version", other(func(s *Schema) { s.Metadata = nil }), []string{VersionKey, "not a table trace"}},
		{"version 1", other(func(s *Schema) { s.Metadata = [][2]string{{"mrm_trace_schema_version", "1.1"}} }), nil},
		{"later version", other(func(s *Schema) { s.Metadata = [][2]string{{VersionKey, "3.0"}} }),
			[]string{`version: "3.0"`, Version, "read it with"}},
		{"no column", other(func(s *Schema) { s.Columns = s.Columns[:1] }), []string{"no column op", "trace"}},
		{"another type", other(func(s *Schema) { s.Columns[1].Kind = Int64 }),
			[]string{"column op is of int64", "of text"}},
	} {
		path := filepath.Join(t.TempDir(), "trace.parquet")
		if err := os.WriteFile(path, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		err := Check(path, form)
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !errors.Is(err, ErrTable) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; it does not say %q", c.name, err, want)
			}
		}
	}
	if err := Check(filepath.Join(t.TempDir(), "none"), form); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestDamagedPages: a bit that is wrong in the rows is found by the page's checksum, wherever it is.
func TestDamagedPages(t *testing.T) {
	m := &model{schema: modelSchema()}
	text := m.write(t, 77, Options{})
	footer := len(text) - 8 - int(binary.LittleEndian.Uint32(text[len(text)-8:]))
	for at := 4; at < footer; at += 1 + footer/50 {
		damaged := bytes.Clone(text)
		damaged[at] ^= 1 << (at % 8)
		r, err := NewReader(bytes.NewReader(damaged))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for group := range r.Groups() {
			for _, c := range m.schema.Columns {
				if _, err := r.Column(group, c.Name); err != nil {
					found = true
					if !errors.Is(err, ErrTable) {
						t.Errorf("%v", err)
					}
				}
			}
		}
		// In the head of a page there are bits that mean nothing here.
		if !found {
			m.readColumns(t, r)
		}
	}
}

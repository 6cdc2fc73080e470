package table

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// TestFloats writes lists of floats and reads them.
func TestFloats(t *testing.T) {
	schema := Schema{Columns: []Column{{Name: "n", Kind: Int64}, {Name: "x", Kind: Float32List}}}
	var file bytes.Buffer
	out, err := NewParquet(&file, schema)
	if err != nil {
		t.Fatal(err)
	}
	var want [2][]float32
	for group := range want {
		batch := NewBatch(schema)
		for row := range 700 {
			list := []float32{float32(row), -1.5e-7 * float32(group), 3}
			want[group] = append(want[group], list...)
			batch.Int(0, int64(row))
			batch.Floats(1, list)
			if err := batch.EndRow(); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.Write(batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(file.Bytes()))
	if err != nil || r.Groups() != 2 {
		t.Fatalf("%v", err)
	}
	for group := range want {
		if got, err := r.Floats(group, "x"); err != nil || !slices.Equal(got, want[group]) {
			t.Errorf("row group %d: %d floats, want %d: %v", group, len(got), len(want[group]), err)
		}
	}
	for _, name := range []string{"n", "y"} {
		if _, err := r.Floats(0, name); !errors.Is(err, ErrTable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	noticed, step := 0, 1
	if testing.Short() { // nothing of it is concurrent
		step = 20
	}
	for at := 0; at < file.Len(); at += step { // damage is an error or in another place, and ends nothing
		damaged := slices.Clone(file.Bytes())
		damaged[at] ^= 1
		if r, err := NewReader(bytes.NewReader(damaged)); err == nil && r.Groups() > 0 {
			if _, err := r.Floats(0, "x"); errors.Is(err, ErrTable) {
				noticed++
			}
		}
	}
	if noticed < 50/step+1 {
		t.Errorf("damage is noticed in %d places", noticed)
	}
}

package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestControlVectorNumbers: a vector with a value that is no finite number is neither written nor read.
func TestControlVectorNumbers(t *testing.T) {
	var file bytes.Buffer
	v := ControlVector{Model: "llama", Layers: 2, Directions: map[int][]float32{1: {1, 2}}}
	if err := v.Write(&file); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		data := bytes.Clone(file.Bytes())
		at := bytes.LastIndex(data, []byte{0, 0, 0x80, 0x3f}) // 1
		binary.LittleEndian.PutUint32(data[at:], math.Float32bits(float32(bad)))
		path := filepath.Join(t.TempDir(), "bad.gguf")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenControlVector(path); !errors.Is(err, ErrNotControlVector) {
			t.Errorf("%v is read: %v", bad, err)
		}
		v.Directions[1][1] = float32(bad)
		if err := v.Write(io.Discard); !errors.Is(err, ErrNotControlVector) {
			t.Errorf("%v is written: %v", bad, err)
		}
	}
}

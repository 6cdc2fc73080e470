package autoencoder

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// trained is an autoencoder of planted rows, after few steps.
func trained(t testing.TB, arch string, rows *planted) *SAE {
	t.Helper()
	o := DefaultOptions(arch)
	o.Features, o.K, o.Batch, o.Holdout = 40, 4, 50, 0.3
	trainer, err := NewTrainer(t.Context(), rows, testEngine, o)
	if err == nil {
		err = trainer.Run(t.Context(), rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	layer := 3
	return trainer.SAE(About{Point: "resid_post", Layer: &layer, Tensor: "l_out-3", Model: "m"})
}

func TestSave(t *testing.T) {
	for _, arch := range Archs {
		s, folder := trained(t, arch, newPlanted(12, 20, 2, 300)), t.TempDir()
		if err := s.Save(folder); err != nil {
			t.Fatal(err)
		}
		if got, err := Open(folder); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%s: read back as another one: %v", arch, err)
		}
		text, err := os.ReadFile(filepath.Join(folder, ConfigName))
		if err != nil || !strings.Contains(string(text), `"hook_name": "blocks.3.hook_resid_post"`) {
			t.Errorf("%v\n%s", err, text)
		}
	}
	for point, want := range map[string]string{"mlp_act": "blocks.3.mlp.hook_post", "attn_gate": "", "": ""} {
		layer := 3
		if got := hookName(&About{Point: point, Layer: &layer}); got != want {
			t.Errorf("%s is %q, want %q", point, got, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	folder := t.TempDir()
	if err := trained(t, TopK, newPlanted(12, 20, 2, 300)).Save(folder); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(folder, ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string][2]string{
		"gated":                  {`"topk"`, `"gated"`},
		"no sparse":              {`"d_in": 12`, `"d_in": 13`},
		"fold that":              {`"none"`, `"layer_norm"`},
		"k 41":                   {`"k": 4`, `"k": 41`},
		"invalid":                {`{`, `}`},
		"not centred, which is ": {`"apply_b_dec_to_input": true`, `"apply_b_dec_to_input": false`},
	} {
		bad := strings.Replace(string(good), change[0], change[1], 1)
		if err := os.WriteFile(filepath.Join(folder, ConfigName), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", change, err)
		}
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotSAE) {
		t.Errorf("an empty folder: %v", err)
	}
	s := trained(t, TopK, newPlanted(12, 20, 2, 300))
	s.Encoder[7] = float32(math.NaN())
	if err := s.Save(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "of W_enc is NaN: copy the file again") {
		t.Errorf("a weight that is not a number: %v", err)
	}
}

// FuzzTensors reads anything as a safetensors file: an error, or tensors that are inside.
func FuzzTensors(f *testing.F) {
	path := filepath.Join(f.TempDir(), "x")
	tensors := []tensor{{Name: "a", Shape: []int{2}, values: []float32{1, 2}}}
	err := writeTensors(path, tensors, map[string]string{"k": "v"})
	if err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:20])
	f.Add([]byte(strings.Replace(string(good), "[0,8]", "[4,9]", 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		values, _, err := readTensors(path)
		for name, row := range values {
			if err == nil && 4*len(row) > len(data) {
				t.Errorf("%s has %d values in %d bytes", name, len(row), len(data))
			}
		}
	})
}

package autoencoder

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/rundir"
)

// The files of an autoencoder's folder. The first two are SAELens'; the last one is there until training is complete.
const (
	WeightsName    = "sae_weights.safetensors"
	ConfigName     = "cfg.json"
	CheckpointName = "checkpoint.safetensors"
)

// ErrNotSAE occurs when a folder holds no autoencoder that can be read.
var ErrNotSAE = errors.New("no sparse autoencoder: give a folder of 'llamatap sae train' or SAELens")

// About says what an autoencoder was trained on.
type About struct {
	Model     string   `json:"model,omitempty"`
	ModelArch string   `json:"model_arch,omitempty"`
	Point     string   `json:"point,omitempty"`
	Layer     *int     `json:"layer,omitempty"`
	Tensor    string   `json:"tensor,omitempty"`
	Sources   []string `json:"sources,omitempty"`
	Options   *Options `json:"options,omitempty"`
	Rows      int64    `json:"rows,omitempty"`
	Held      int64    `json:"rows_held_out,omitempty"`
	Steps     int      `json:"steps,omitempty"`
	Engine    string   `json:"engine,omitempty"`
}

// archNames are SAELens' names of the architectures.
var archNames = map[string]string{TopK: "topk", JumpReLU: "jumprelu", ReLU: "standard"}

// config is cfg.json, as SAELens 6 writes it.
type config struct {
	Architecture string         `json:"architecture"`
	DIn          int            `json:"d_in"`
	DSAE         int            `json:"d_sae"`
	DType        string         `json:"dtype"`
	Device       string         `json:"device"`
	Centred      *bool          `json:"apply_b_dec_to_input"`
	Normalize    string         `json:"normalize_activations"`
	Reshape      string         `json:"reshape_activations"`
	K            int            `json:"k,omitempty"`
	Rescale      *bool          `json:"rescale_acts_by_decoder_norm,omitempty"`
	Metadata     configMetadata `json:"metadata"`
}

type configMetadata struct {
	Version  string `json:"sae_lens_version"`
	Trained  string `json:"sae_lens_training_version"`
	Model    string `json:"model_name,omitempty"`
	HookName string `json:"hook_name,omitempty"`
	About    *About `json:"llamatap,omitempty"`
}

// hookName is TransformerLens' name of what an autoencoder was trained on, "" where it has none.
func hookName(a *About) string {
	ref, ok := ggmlhooks.ParsePoint(a.Point)
	switch name := ref.Point.LensName(); {
	case !ok || name == "":
		return ""
	case a.Layer == nil:
		return name
	default:
		return fmt.Sprintf("blocks.%d.%s", *a.Layer, name)
	}
}

// Save writes the folder, which is made where it is missing.
func (s *SAE) Save(folder string) error {
	yes, no := true, false
	c := config{Architecture: archNames[s.Arch], DIn: s.Width, DSAE: s.Features, DType: "float32", Device: "cpu",
		Centred: &yes, Normalize: "none", Reshape: "none", K: s.K, Metadata: configMetadata{Version: "6.0.0",
			Trained: "llamatap", Model: s.About.Model, HookName: hookName(&s.About), About: &s.About}}
	if s.Arch == TopK {
		c.Rescale = &no
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	var tensors []tensor
	for _, p := range s.parts() {
		t := tensor{Name: p.name, Shape: []int{p.size}, values: *p.values}
		switch p.name {
		case "W_dec":
			t.Shape = []int{s.Features, s.Width}
		case "W_enc": // [width][features] in files
			t.Shape, t.values = []int{s.Width, s.Features}, transposed(*p.values, s.Features, s.Width)
		}
		tensors = append(tensors, t)
	}
	path := filepath.Join(folder, WeightsName)
	if err := writeTensors(path, tensors, map[string]string{"format": "pt"}); err != nil {
		return err
	}
	return rundir.WriteFile(filepath.Join(folder, ConfigName), 0o600, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// Open reads a folder that Save or SAELens wrote.
func Open(folder string) (*SAE, error) {
	var c config
	text, err := os.ReadFile(filepath.Join(folder, ConfigName))
	if err != nil {
		if _, missing := os.Stat(filepath.Join(folder, CheckpointName)); missing == nil {
			return nil, fmt.Errorf("%s: its training is not complete: end it with 'llamatap sae train --resume %[1]s'",
				folder)
		}
		return nil, fmt.Errorf("%w: %w", ErrNotSAE, err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %s: %w: %w", folder, ConfigName, ErrNotSAE, err)
	}
	arch := ""
	for ours, theirs := range archNames {
		if theirs == c.Architecture {
			arch = ours
		}
	}
	switch {
	case arch == "":
		return nil, fmt.Errorf("%s: architecture %q is not supported: topk, jumprelu and standard are", folder,
			c.Architecture)
	case c.DIn < 1 || c.DSAE < 1 || c.DIn > 1<<20 || c.DSAE > 1<<24 || arch == TopK && (c.K < 1 || c.K > c.DSAE):
		return nil, fmt.Errorf("%s: %d values, %d features, k %d: %w", folder, c.DIn, c.DSAE, c.K, ErrNotSAE)
	case c.Normalize != "none" || c.Reshape != "none" || c.Centred != nil && !*c.Centred ||
		c.Rescale != nil && *c.Rescale:
		return nil, fmt.Errorf("%s: its activations are normalized, reshaped, rescaled or not centred, which is not "+
			"supported: fold that into the weights with SAELens first", folder)
	}
	tensors, _, err := readTensors(filepath.Join(folder, WeightsName))
	if err != nil {
		return nil, err
	}
	s := &SAE{Arch: arch, Width: c.DIn, Features: c.DSAE, K: c.K}
	if c.Metadata.About != nil {
		s.About = *c.Metadata.About
	} else if ref, ok := ggmlhooks.ParsePoint(c.Metadata.HookName); ok {
		s.About.Model, s.About.Point = c.Metadata.Model, ref.Point.String()
		if ref.Layer != ggmlhooks.NoLayer {
			s.About.Layer = &ref.Layer
		}
	}
	for _, p := range s.parts() {
		if len(tensors[p.name]) != p.size {
			return nil, fmt.Errorf("%s: %s has %d values, not %d: %w", folder, p.name, len(tensors[p.name]), p.size,
				ErrNotSAE)
		}
		*p.values = tensors[p.name]
	}
	s.Encoder = transposed(s.Encoder, s.Width, s.Features)
	return s, nil
}

// transposed is a matrix with its rows as columns.
func transposed(m []float32, rows, columns int) []float32 {
	to := make([]float32, len(m))
	for r := range rows {
		for c, v := range m[r*columns:][:columns] {
			to[c*rows+r] = v
		}
	}
	return to
}

// tensor is one of a safetensors file: https://huggingface.co/docs/safetensors.
type tensor struct {
	Name    string   `json:"-"`
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
	values  []float32
}

// writeTensors writes a file of F32 tensors.
func writeTensors(path string, tensors []tensor, about map[string]string) error {
	header := map[string]any{"__metadata__": about}
	at := int64(0)
	for _, t := range tensors {
		size := int64(4 * len(t.values))
		t.DType, t.Offsets = "F32", [2]int64{at, at + size}
		header[t.Name] = t
		at += size
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return rundir.WriteFile(path, 0o600, func(w io.Writer) error {
		if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
			return err
		}
		var piece []byte
		for _, t := range tensors {
			for values := range slices.Chunk(t.values, 1<<16) {
				piece = piece[:0]
				for _, v := range values {
					piece = binary.LittleEndian.AppendUint32(piece, math.Float32bits(v))
				}
				if _, err := w.Write(piece); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// maxHeader is the largest header of a file that is read.
const maxHeader = 100_000_000

// readTensors reads the F32 tensors of a file, by name, and its metadata.
func readTensors(path string) (values map[string][]float32, about map[string]string, err error) {
	file, err := rundir.OpenFile(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	damaged := func(what string) error { return fmt.Errorf("%s: %s: the file is damaged or cut off", path, what) }
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	var head [8]byte
	_, err = io.ReadFull(file, head[:])
	size := int64(binary.LittleEndian.Uint64(head[:]))
	if err != nil || size < 2 || size > maxHeader || size > info.Size()-8 {
		return nil, nil, damaged("it has no header of safetensors")
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(file, text); err != nil {
		return nil, nil, err
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, nil, damaged(err.Error())
	}
	values = map[string][]float32{}
	for name, entry := range header {
		if name == "__metadata__" {
			if err := json.Unmarshal(entry, &about); err != nil {
				return nil, nil, damaged(err.Error())
			}
			continue
		}
		var t tensor
		if err := json.Unmarshal(entry, &t); err != nil {
			return nil, nil, damaged(err.Error())
		}
		first, end := t.Offsets[0], t.Offsets[1]
		switch {
		case t.DType != "F32":
			return nil, nil, fmt.Errorf("%s: %s is of type %s: convert it to float32", path, name, t.DType)
		case first < 0 || end < first || end > info.Size()-8-size || (end-first)%4 != 0:
			return nil, nil, damaged(name + " lies outside")
		}
		raw := make([]byte, end-first)
		if _, err := file.ReadAt(raw, 8+size+first); err != nil {
			return nil, nil, err
		}
		row := make([]float32, len(raw)/4)
		for i := range row {
			row[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
			if v := float64(row[i]); math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, nil, fmt.Errorf("%s: value %d of %s is %v: copy the file again, or train again with a "+
					"smaller learning rate", path, i, name, v)
			}
		}
		values[name] = row
	}
	return values, about, nil
}

package autoencoder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrCheckpoint occurs when a checkpoint cannot be resumed.
var ErrCheckpoint = errors.New("no checkpoint of this training")

// checkpointVersion is that of the format: parameters and moments in the order of [SAE], and state in the metadata.
const checkpointVersion = 1

// state is what a checkpoint holds besides parameters.
type state struct {
	Version int     `json:"version"`
	Step    int     `json:"step"`
	Options Options `json:"options"`
	Stats   Stats   `json:"stats"`
	Engine  string  `json:"engine"`
	Idle    []int32 `json:"idle"`
	About   About   `json:"about"`
}

// SaveCheckpoint writes all that training needs to resume, and what the rows are.
func (t *Trainer) SaveCheckpoint(folder string, about About) error {
	text, err := json.Marshal(state{checkpointVersion, t.step, t.Options, t.stats, t.engine.Name(), t.idle, about})
	if err != nil {
		return err
	}
	return writeTensors(filepath.Join(folder, CheckpointName), []tensor{
		{Name: "parameters", Shape: []int{len(t.all)}, values: t.all},
		{Name: "moment1", Shape: []int{len(t.all)}, values: t.moment1},
		{Name: "moment2", Shape: []int{len(t.all)}, values: t.moment2},
	}, map[string]string{"llamatap": string(text)})
}

// ResumeTrainer returns a trainer as a checkpoint has it, and what its rows are. With the engine of before and the same
// rows it ends with the same bits as if it had not been interrupted; sameEngine reports whether it is that one.
func ResumeTrainer(folder string, e Engine) (t *Trainer, about About, sameEngine bool, err error) {
	path := filepath.Join(folder, CheckpointName)
	values, texts, err := readTensors(path)
	if errors.Is(err, fs.ErrNotExist) {
		why := "give the folder of a training that was interrupted"
		if _, err := os.Stat(filepath.Join(folder, ConfigName)); err == nil {
			why = "it is complete: evaluate it with 'llamatap sae eval', or train another with -o"
		}
		return nil, about, false, fmt.Errorf("%s: %w: %s", folder, ErrCheckpoint, why)
	}
	if err != nil {
		return nil, about, false, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	var s state
	if err := json.Unmarshal([]byte(texts["llamatap"]), &s); err != nil {
		return nil, about, false, fmt.Errorf("%s: %w: %w", path, ErrCheckpoint, err)
	}
	if s.Version != checkpointVersion {
		return nil, about, false, fmt.Errorf("%s: %w: it has version %d, and this program reads %d", path,
			ErrCheckpoint, s.Version, checkpointVersion)
	}
	if err := s.Options.Check(); err != nil {
		return nil, about, false, fmt.Errorf("%s: %w: %w", path, ErrCheckpoint, err)
	}
	width, parameters := s.Stats.Width, values["parameters"]
	if width < 1 || width > len(parameters) || len(s.Stats.Mean) != width || !(s.Stats.Norm > 0) || s.Stats.Rows < 1 ||
		len(s.Idle) != s.Options.Features || s.Step < 0 ||
		(&SAE{Arch: s.Options.Arch, Width: width, Features: s.Options.Features}).size() != len(parameters) {
		return nil, about, false, fmt.Errorf("%s: %w: its state contradicts itself", path, ErrCheckpoint)
	}
	t = newTrainer(&s.Stats, e, s.Options)
	for name, to := range map[string][]float32{"parameters": t.all, "moment1": t.moment1, "moment2": t.moment2} {
		if copy(to, values[name]) != len(to) {
			return nil, about, false, fmt.Errorf("%s: %w: %s is too short", path, ErrCheckpoint, name)
		}
	}
	t.step, t.idle = s.Step, s.Idle
	return t, s.About, s.Engine == e.Name(), nil
}

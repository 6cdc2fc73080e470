package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/llamatap/llamatap/internal/cli"
)

// A Roofline is what a machine can do at most: how fast it computes, and how fast its memory is. What an op reaches
// of it depends on how many operations it does per byte: below Ridge the memory bounds it, above it the processors.
//
// Source: Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
type Roofline struct {
	CPU        string    `json:"cpu"` // as /proc/cpuinfo calls it
	CPUs       int       `json:"cpus"`
	Threads    int       `json:"threads"`     // that measured it
	VectorBits int       `json:"vector_bits"` // of the multiply-adds
	GFLOPsPerS float64   `json:"gflops_per_s"`
	GBPerS     float64   `json:"gb_per_s"`
	Measured   time.Time `json:"measured"`
}

// Ridge is the operations per byte from which on the processors are the bound.
func (r Roofline) Ridge() float64 { return r.GFLOPsPerS / r.GBPerS }

// rooflineName is the file in the user's cache folder.
const rooflineName = "roofline.json"

// ErrNoRoofline occurs when none was measured on this machine.
var ErrNoRoofline = errors.New("the roofline of this machine was not measured; 'llamatap doctor --roofline' does that")

// RooflineFile is where the roofline of this machine is kept.
func RooflineFile() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w: set HOME, or XDG_CACHE_HOME", err)
	}
	return filepath.Join(dir, "llamatap", rooflineName), nil
}

// Save keeps a roofline for the recordings that follow.
func (r Roofline) Save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keep the roofline: %w", err)
	}
	temporary := path + ".part"
	if err = os.WriteFile(temporary, append(text, '\n'), 0o644); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("keep the roofline: %w", err)
	}
	return nil
}

// LoadRoofline reads what was kept. That of another machine, or with other processors than this process may use, is
// ErrNoRoofline.
func LoadRoofline(path string) (Roofline, error) {
	var r Roofline
	text, err := cli.ReadFile(path, cli.MaxConfig)
	if errors.Is(err, os.ErrNotExist) {
		return r, ErrNoRoofline
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read the roofline: %w; 'llamatap doctor --roofline' writes it anew", err)
	}
	if r.CPU != CPUName() || r.CPUs != runtime.NumCPU() || r.GFLOPsPerS <= 0 || r.GBPerS <= 0 {
		return Roofline{}, ErrNoRoofline
	}
	return r, nil
}

// CPUName is what the kernel calls the first processor, "" where it does not.
func CPUName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(text) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

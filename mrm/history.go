package mrm

import (
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/store/rundir"
)

// The folders below output.dir that hold no model's runs.
const (
	workFolder    = ".mrm"
	archiveFolder = "contaminated"
)

// A sealed run that was found below output.dir.
type found struct {
	dir  string
	meta memory.Metadata
	err  error // why its metadata could not be read
}

// runs returns the sealed runs of a folder of results, those that are contaminated behind the others.
func runs(out string) []found { return newer(out, nil) }

// newer are known runs and those that were sealed since.
func newer(out string, known []found) []found {
	seen := make(map[string]bool, len(known))
	for i := range known {
		seen[known[i].dir] = true
	}
	for _, pattern := range []string{filepath.Join(out, "*", "run_*"),
		filepath.Join(out, archiveFolder, "*", "run_*")} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, rundir.ManifestName)); err != nil || seen[dir] {
				continue
			}
			m, err := memory.ReadMetadata(dir)
			known = append(known, found{dir, m, err})
		}
	}
	return known
}

// series are the figures of a model's runs.
type series struct{ prefill, decode, ratio, load, perToken, both, peak, bytes []float64 }

// history is how fast each model ran on a processor of this name, by its sealed runs; by contaminated ones where
// there are no others.
func history(sealed []found, cpu string) map[string]*Speeds {
	speeds := map[string]*Speeds{}
	for _, contaminated := range []bool{false, true} {
		byModel := map[string]*series{}
		for i := range sealed {
			m := &sealed[i].meta
			if sealed[i].err != nil || m.Host.CPU != cpu || (m.Validity.Class == memory.Contaminated) != contaminated ||
				speeds[m.Cell.ModelID] != nil {
				continue
			}
			if byModel[m.Cell.ModelID] == nil {
				byModel[m.Cell.ModelID] = &series{}
			}
			byModel[m.Cell.ModelID].add(&m.Observer, sizeOf(sealed[i].dir))
		}
		for model, s := range byModel {
			speeds[model] = s.middle()
		}
	}
	return speeds
}

// add takes a run in, which left so many bytes.
func (s *series) add(o *memory.Observer, bytes int64) {
	prefill, decode := o.Baseline.Rates()
	s.prefill, s.decode = append(s.prefill, prefill), append(s.decode, decode)
	s.both, s.bytes = append(s.both, float64(o.Baseline.WallNS+o.Tapped.WallNS)/1e9), append(s.bytes, float64(bytes))
	if o.TargetRSSBytes > 0 {
		s.peak = append(s.peak, float64(o.TargetRSSBytes))
	}
	if o.Baseline.WallNS > 0 {
		s.ratio = append(s.ratio, float64(o.Tapped.WallNS)/float64(o.Baseline.WallNS))
		s.load = append(s.load, float64(max(o.Baseline.WallNS-o.Baseline.PromptNS-o.Baseline.GenerationNS, 0))/1e9)
	}
	if tokens := o.Tapped.PromptTokens + o.Tapped.GeneratedTokens; tokens > 0 {
		s.perToken = append(s.perToken, float64(bytes)/float64(tokens))
	}
}

func (s *series) middle() *Speeds {
	return &Speeds{
		Runs: len(s.decode), Prefill: middle(s.prefill), Decode: middle(s.decode), Ratio: middle(s.ratio),
		Load: middle(s.load), PerToken: middle(s.perToken),
		Both: middle(s.both), Peak: middle(s.peak), Bytes: middle(s.bytes),
	}
}

// sizeOf is what a sealed run takes, by its manifest.
func sizeOf(dir string) (bytes int64) {
	m, err := rundir.ReadManifest(dir)
	if err != nil {
		return 0
	}
	for _, f := range m.Files {
		bytes += f.Size
	}
	return bytes
}

package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/stream"
)

// TestPrograms runs each program on small tensors and compares what it prints with the file that it wrote.
func TestPrograms(t *testing.T) {
	for _, name := range ProgramNames {
		for dtype, size := range map[string]int64{"float32": 4, "float16": 2, "int8": 1} {
			p := NewProgram(name)
			if p.Output == "" {
				t.Fatal("no default output")
			}
			p.Output, p.Tensors, p.Trials, p.Shape, p.DType = filepath.Join(t.TempDir(), "o.bin"), 5, 3, "3,64,32",
				dtype
			if err := os.WriteFile(p.Output, []byte("what an earlier run left"), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := p.Run(t.Context())
			if err != nil {
				t.Fatal(name, err)
			}
			count := int64(p.Tensors)
			if r.Compress {
				count = int64(p.Trials)
			}
			if r.Source != count*3*64*32*size || r.Written <= 0 || r.Elapsed <= 0 ||
				(r.PeakRSS > 0) != (name == "memory_profiling") {
				t.Errorf("%s %s: %+v", name, dtype, r)
			}
			switch name {
			case "baseline_dump":
				if info, err := os.Stat(p.Output); err != nil || info.Size() != r.Source || r.Written != r.Source {
					t.Errorf("%s %s: the file is not as large as the tensors: %+v", name, dtype, r)
				}
			case "compression_analysis":
				if !strings.Contains(r.String(), "ratio ") {
					t.Error(r)
				}
			default:
				s, err := stream.Open(p.Output)
				if err != nil {
					t.Fatal(name, dtype, err)
				}
				packets := 0
				for range s.Packets() {
					packets++
				}
				if err := s.Close(); err != nil || packets != p.Tensors || !strings.Contains(r.String(), "GB/s") {
					t.Errorf("%s %s: %d packets, %v, %v", name, dtype, packets, r, err)
				}
			}
		}
	}
}

// TestProgramsRefuse: an invalid flag is refused before a file is written.
func TestProgramsRefuse(t *testing.T) {
	for what, change := range map[string]func(*Program){
		"shape": func(p *Program) { p.Shape = "0,4" }, "product": func(p *Program) { p.Shape = "65536,65536" },
		"dtype":   func(p *Program) { p.DType = "f8" },
		"tensors": func(p *Program) { p.Tensors = 0 }, "name": func(p *Program) { p.Name = "dump" },
	} {
		p := NewProgram("baseline_dump")
		p.Output = filepath.Join(t.TempDir(), "o.bin")
		change(&p)
		if _, err := p.Run(t.Context()); err == nil {
			t.Error(what, "was accepted")
		}
		if _, err := os.Stat(p.Output); err == nil {
			t.Error(what, "wrote a file")
		}
	}
}

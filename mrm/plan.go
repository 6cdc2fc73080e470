package mrm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/runner/doctor"
)

// Plan is a matrix with what it needs, computed before anything runs.
type Plan struct {
	Config  *Config
	Sources []*Source
	Cells   []*Cell
	Needs   []Need // of each cell
	Done    int    // cells that have a sealed run already
	Machine Machine
}

// Machine is what there is for it.
type Machine struct {
	FreeMemory int64 // bytes; 0: not known
	FreeDisk   int64 // of the file system of output.dir; 0: not known
	Memory     Bandwidth
	Missing    map[string]error // collectors that cannot run, and why
}

// ErrNoRoom occurs when a cell cannot fit into this machine's memory, or all of them onto its disk, or the disk is
// full.
var ErrNoRoom = errors.New("it does not fit")

// ThisMachine looks at the machine that this process runs on. Where no roofline is kept, it measures the memory for
// a third of a second.
func ThisMachine(root fs.FS, out string) Machine {
	m := Machine{FreeDisk: freeDisk(out), Missing: MissingCollectors()}
	if free, err := doctor.FreeMemory(root); err == nil {
		m.FreeMemory = int64(free)
	}
	if path, err := machine.RooflineFile(); err == nil {
		if kept, err := machine.LoadRoofline(path); err == nil {
			m.Memory = Bandwidth{kept.GBPerS * 1e9,
				present.Rate(kept.GBPerS*1e9) + ", as llamatap doctor --roofline measured", Measured}
			return m
		}
	}
	if now, err := machine.MeasureMemory(machine.Limit{Time: 300 * time.Millisecond, Bytes: 192 << 20}); err == nil {
		rate := now.Triad.PerSecond()
		m.Memory = Bandwidth{rate, present.Rate(rate) + ", measured just now", Measured}
	}
	return m
}

// freeDisk is what is free on the file system that a folder lies on, or will; 0 where that is not known.
func freeDisk(dir string) int64 {
	free, _ := doctor.FreeDisk(dir)
	return int64(free)
}

// NewPlan computes what an experiment needs. What was measured in earlier runs below output.dir, on a processor of
// this name, is used.
func NewPlan(c *Config, m Machine) (*Plan, error) {
	p := &Plan{Config: c, Machine: m}
	var err error
	if p.Sources, err = c.Sources(); err != nil {
		return nil, err
	}
	if p.Cells, err = c.Cells(p.Sources); err != nil {
		return nil, err
	}
	before := runs(c.Output.Dir)
	speeds := history(before, machine.CPUName())
	for _, cell := range p.Cells {
		need, err := estimate{c, cell, speeds[cell.ModelID], m.Memory}.need()
		if err != nil {
			problems := c.problems()
			problems.add(err.Error(), "choose another type of the cache", "engine.kv_type")
			return nil, problems
		}
		p.Needs = append(p.Needs, need)
		if doneBy(cell, c.Experiment.Name, before) != nil {
			p.Done++
		}
	}
	return p, nil
}

// doneBy is the sealed run of a cell; nil where there is none.
func doneBy(cell *Cell, experiment string, sealed []found) *found {
	for i := range sealed {
		if m := &sealed[i].meta; sealed[i].err == nil && m.Experiment.Name == experiment && m.Cell.Key == cell.Key &&
			m.Cell.Repetition == cell.Repetition {
			return &sealed[i]
		}
	}
	return nil
}

// limits returns the cell that takes most memory, and all that cells take of the disk and of time. The tags are the
// weakest ones.
func (p *Plan) limits() (cell *Cell, memory, disk, time Figure) {
	rank := map[Tag]int{Computed: 1, Measured: 2, Estimated: 3, Unknown: 4}
	sum := func(to *Figure, f Figure) {
		to.Value += f.Value
		if rank[f.Tag] > rank[to.Tag] {
			to.Tag, to.From = f.Tag, f.From
		}
	}
	for i, need := range p.Needs {
		if i == 0 || memory.Tag != Unknown && (need.Memory.Tag == Unknown || need.Memory.Value > memory.Value) {
			cell, memory = p.Cells[i], need.Memory
		}
		sum(&disk, need.Disk)
		sum(&time, need.Time)
	}
	return cell, memory, disk, time
}

// Check reports what keeps it from running on this machine: a collector that is missing, or no room for a cell in
// its free memory or for all that is not done on its disk, with what the recorder leaves free.
func (p *Plan) Check() error {
	if err := p.Config.Collects(p.Machine.Missing); err != nil {
		return err
	}
	cell, memory, disk, _ := p.limits()
	if free := p.Machine.FreeMemory; free > 0 && memory.Tag != Unknown && memory.Value > float64(free) {
		return fmt.Errorf("%w: %s takes about %v of memory, and %v are free; choose a shorter n_ctx, a smaller "+
			"kv_type or model, or another machine ('llamatap mrm plan --emit slurm')",
			ErrNoRoom, cell.Name(), present.Bytes(memory.Value), present.Bytes(float64(free)))
	}
	left := disk.Value * float64(len(p.Cells)-p.Done) / float64(max(len(p.Cells), 1))
	if free := p.Machine.FreeDisk; free > 0 && disk.Tag != Unknown && left > float64(free) {
		return fmt.Errorf("%w: the runs take about %v of the disk, and %s has %v free; give another output.dir, "+
			"graph_trace: windows, fewer tokens or repetitions",
			ErrNoRoom, present.Bytes(left), p.Config.Output.Dir, present.Bytes(float64(free)))
	}
	return nil
}

// Write writes the plan for people.
func (p *Plan) Write(out io.Writer) error {
	c := p.Config
	var b strings.Builder
	fmt.Fprintf(&b, "experiment  %s (%s)\n", c.Experiment.Name, c.file)
	for _, s := range p.Sources {
		if c.Engine.isCommand() {
			fmt.Fprintf(&b, "program     %s: %s\n", s.ID,
				strings.Join(append([]string{s.Program}, c.Engine.Command[1:]...), " "))
			continue
		}
		fmt.Fprintf(&b, "model       %s: %v\n", s.ID, s.Identity)
	}
	loads := ""
	if n := len(c.Workload.MaxTokens); n > 1 {
		loads += fmt.Sprintf(" × %d numbers of tokens", n)
	}
	if n := len(c.Workload.Concurrency); n > 1 {
		loads += fmt.Sprintf(" × %d numbers of requests", n)
	}
	fmt.Fprintf(&b, "matrix      %s × %s × %s%s × %s × %s = %s, %d of them done\n",
		present.Plural(len(p.Sources), "model"), present.Plural(len(c.Engine.NCtx), "context"),
		present.Plural(len(c.Engine.KVType), "cache type"), loads, present.Plural(len(c.Workload.Prompts), "prompt"),
		present.Plural(c.Experiment.Repetitions, "repetition"), present.Plural(len(p.Cells), "cell"), p.Done)
	fmt.Fprintf(&b, "collectors  %s\n\n", p.collectors())
	p.table(&b)
	cell, memory, disk, time := p.limits()
	fmt.Fprintf(&b, "\nmemory      %s, for %s", memory.sourced(present.Bytes), cell.Name())
	if p.Machine.FreeMemory > 0 {
		fmt.Fprintf(&b, "; %s are free", present.Bytes(float64(p.Machine.FreeMemory)))
	}
	fmt.Fprintf(&b, "\ndisk        %s", disk.sourced(present.Bytes))
	if p.Machine.FreeDisk > 0 {
		fmt.Fprintf(&b, "; %s are free", present.Bytes(float64(p.Machine.FreeDisk)))
	}
	fmt.Fprintf(&b, "\ntime        %s, one cell after the other\n", time.sourced(present.Seconds))
	_, err := io.WriteString(out, b.String())
	return err
}

// table has a line per combination: repetitions need the same. n_ctx is what is asked for, context what llama.cpp
// makes of it.
func (p *Plan) table(out io.Writer) {
	rows := [][]string{{"model", "prompt", "n_ctx", "context", "cache", "tokens", "requests",
		"runs", "weights", "cache",
		"compute", "memory", "disk", "time each"}}
	combinations := len(p.Cells) / int(p.Config.Experiment.Repetitions)
	for i, cell := range p.Cells[:combinations] {
		n := &p.Needs[i]
		context := "-"
		if !p.Config.Engine.isCommand() {
			context = fmt.Sprint(cell.context())
		}
		rows = append(rows, []string{cell.ModelID, cell.Prompt, orDash(cell.NCtx), context, cmp.Or(cell.KVType, "-"),
			orDash(cell.MaxTokens), orDash(cell.Concurrency), fmt.Sprint(p.Config.Experiment.Repetitions),
			n.Weights.text(present.Bytes), n.Cache.text(present.Bytes), n.Compute.text(present.Bytes),
			n.Memory.text(present.Bytes), n.Disk.text(present.Bytes), n.Time.text(present.Seconds)})
	}
	present.Table(out, rows)
}

// orDash returns a number, or a dash for 0: a key that is not passed to a program.
func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// collectors says in words what is collected.
func (p *Plan) collectors() string {
	k := p.Config.Collector
	words := "regions, KV cache"
	if p.Config.Engine.isCommand() {
		words = "regions, processes"
	}
	if k.GraphTrace != "off" {
		words += ", ledger of graphs in " + k.GraphTrace
	}
	if k.Primary != "graph" && k.Primary != "none" {
		words += ", " + k.Primary
		if k.Fallback != "none" {
			words += " (else " + k.Fallback + ")"
		}
	}
	return words
}

// Summary is a plan for other programs.
type Summary struct {
	Experiment string        `json:"experiment"`
	Done       int           `json:"done"`
	Cells      []CellSummary `json:"cells"`
	Memory     Figure        `json:"memory_bytes"` // of the cell that takes most
	Disk       Figure        `json:"disk_bytes"`   // of all cells
	Time       Figure        `json:"time_s"`       // of all cells, one after the other
	FreeMemory int64         `json:"free_memory_bytes,omitempty"`
	FreeDisk   int64         `json:"free_disk_bytes,omitempty"`
}

// CellSummary is a cell with what it needs.
type CellSummary struct {
	memory.Cell
	Context int64 `json:"n_ctx_effective,omitempty"` // what llama.cpp makes of n_ctx; absent where a command runs
	Need    Need  `json:"need"`
}

// Summary is the plan for other programs.
func (p *Plan) Summary() Summary {
	s := Summary{Experiment: p.Config.Experiment.Name, Done: p.Done, FreeMemory: p.Machine.FreeMemory,
		FreeDisk: p.Machine.FreeDisk}
	for i, cell := range p.Cells {
		summary := CellSummary{Cell: cell.Cell, Need: p.Needs[i]}
		if !p.Config.Engine.isCommand() {
			summary.Context = cell.context()
		}
		s.Cells = append(s.Cells, summary)
	}
	_, s.Memory, s.Disk, s.Time = p.limits()
	return s
}

package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// hostSection is what the kernel did meanwhile.
func hostSection(_ context.Context, r *Run, over *tracks) (*section, error) {
	s := &section{ID: "host", Title: "Host"}
	add := func(c *figure) {
		if c != nil {
			s.Charts = append(s.Charts, c)
		}
	}
	add(over.counters("Pressure: share of the time in which some thread of the machine waited", "share of the time",
		"%",
		func(name string) (string, bool) { return cutKind(name, "pressure: ") }))
	add(over.counters("Threads: share of the time running or waiting", "share of the time", "%",
		func(name string) (string, bool) { return cutKind(name, "thread ") }))
	add(over.counters("Disks: bytes per second", "bytes per second", "B/s", func(name string) (string, bool) {
		disk, op, ok := strings.Cut(name, ": ")
		return name, ok && !strings.Contains(disk, " ") && slices.Contains([]string{"read", "write", "discard"}, op)
	}))
	if w := r.Waits; w != nil {
		rows := [][]string{{"phase", "time", "waited", "faults", "major", "pre-empted", "read"}}
		for i := range w.Phases {
			p := &w.Phases[i]
			rows = append(rows, []string{p.Phase, ns(float64(p.DurationNS)), ns(float64(p.StalledNS)),
				present.Count(p.Faults),
				present.Count(p.Major), ns(float64(p.PreemptedNS)), present.Bytes(p.ReadBytes)})
		}
		s.Tables = append(s.Tables, &titled{"Waits for files, by phase", rows})
		rows = [][]string{{"tensor or file", "waited, all threads", "faults", "major", "read"}}
		for i := range w.Tensors[:min(len(w.Tensors), 12)] {
			t := &w.Tensors[i]
			rows = append(rows, []string{cmp.Or(t.Tensor, t.File), ns(float64(t.WaitNS)), present.Count(t.Faults),
				present.Count(t.Major), present.Bytes(t.ReadBytes)})
		}
		s.Tables = append(s.Tables, &titled{"Where threads waited most", rows})
	}
	if n := over.CountersLeft; n > 0 {
		s.Text = append(s.Text, fmt.Sprintf("%d values are of more threads and devices than are drawn.", n))
	}
	if _, ok := rundir.Present(r.Path, rundir.SystemName); ok && len(s.Charts) == 0 {
		s.Text = append(s.Text,
			"Nothing can be drawn over time: no interval ended during the tokens. Record a longer run, or "+
				"a shorter --tap-host-interval.")
	} else if len(s.Charts)+len(s.Tables) == 0 {
		s.Missing = "Not recorded: --tap-host system,waits"
	}
	return s, nil
}

// cutKind returns a name without what says its kind, which follows the name of another host; ok: it is of that kind.
func cutKind(name, kind string) (label string, ok bool) {
	host, rest, ok := strings.Cut(name, kind)
	return host + rest, ok && (host == "" || strings.IndexByte(host, ' ') == len(host)-1)
}

// devicesSection is what GPUs and energy counters reported.
func devicesSection(_ context.Context, r *Run, over *tracks) (*section, error) {
	s := &section{ID: "devices", Title: "Devices"}
	for _, c := range []struct{ title, name, unit, suffix, prefix string }{
		{"Power", "power", "W", "power", "power of "},
		{"Utilization of GPUs: share of the time in which some kernel ran", "share of the time", "%", "utilization",
			""},
		{"Memory of GPUs in use, by all processes", "in use", "B", "memory used", ""},
		{"Clock of streaming multiprocessors", "clock", "MHz", "SM clock", ""},
	} {
		if chart := over.counters(c.title, c.name, c.unit, func(name string) (string, bool) {
			if label, ok := strings.CutSuffix(name, c.suffix); ok && strings.HasPrefix(name, "GPU ") {
				return strings.TrimSpace(label), true
			}
			return strings.TrimPrefix(name, "power of "), c.prefix != "" && strings.HasPrefix(name, c.prefix)
		}); chart != nil {
			s.Charts = append(s.Charts, chart)
		}
	}
	if chart := over.counters("Bytes moved to and from devices, in all", "moved", "B", func(name string) (string,
		bool) {
		return strings.CutPrefix(name, "moved ")
	}); chart != nil {
		s.Charts = append(s.Charts, chart)
	}
	if r.Metadata != nil {
		for _, h := range resource.OtherHosts(r.Metadata.Extra["hosts"]) {
			s.Text = append(s.Text, h.String())
		}
	}
	if r.Resources != nil && len(r.Resources.Energy) > 0 {
		rows := [][]string{{"device", "phase", "energy", "time", "tokens", "per token", "source"}}
		joule := func(j *float64) string { return present.Maybe(j, present.Digits) }
		for i := range r.Resources.Energy {
			e := &r.Resources.Energy[i]
			rows = append(rows, []string{e.Domain, e.Phase, joule(e.EnergyJ) + " J", ns(float64(e.DurationNS)),
				present.Maybe(e.Tokens, present.Count), joule(e.JoulesPerToken) + " J", e.EnergySource})
		}
		s.Tables = append(s.Tables, &titled{"Energy by phase", rows})
	}
	if len(s.Charts)+len(s.Tables)+len(s.Text) == 0 {
		s.Missing =
			"Nothing was recorded of devices: --tap-resource-level with a GPU, or on a machine with energy counters " +
				"(RAPL)"
	}
	return s, nil
}

// layersEnergy is what each device used for each layer; nil where that is not known.
func layersEnergy(all *resources.Report) *figure {
	c := &figure{Kind: drawnBars, Title: "Energy by layer, apportioned by time", X: axis{Name: "energy", Unit: "J"}}
	layers := 0
	for _, g := range all.GraphEnergy {
		layers = max(layers, len(g.LayerJ))
	}
	if layers == 0 {
		return nil
	}
	for layer := -1; layer < layers; layer++ {
		c.Rows = append(c.Rows, layerName(layer))
	}
	for _, g := range all.GraphEnergy {
		of := &curve{Name: g.Domain, Y: make(values, layers+1)}
		of.Y[0] = g.NoLayerJ
		copy(of.Y[1:], g.LayerJ)
		c.Series = append(c.Series, of)
		if g.UntimedJ > 0 {
			c.Note += fmt.Sprintf(" %s used %.4g J in executions whose layers were not timed.", g.Domain, g.UntimedJ)
		}
	}
	c.Note = strings.TrimSpace(c.Note)
	return c
}

// lossesSection is what the recording lacks, and what it cost.
func lossesSection(_ context.Context, r *Run, _ *tracks) (*section, error) {
	s := &section{ID: "losses", Title: "Losses and validity"}
	switch r.State {
	case resources.StateSealed:
		s.Text = append(s.Text, "The run is sealed: llamatap verify checks it against its manifest.")
	default:
		s.Text = append(s.Text, fmt.Sprintf("The run is not sealed (%s).", r.State))
	}
	m := r.Metadata
	if m == nil {
		s.Text = append(s.Text, "It has no metadata.")
		return s, nil
	}
	if m.Stopped != nil {
		s.Text = append(s.Text, fmt.Sprintf("Recording stopped before the program did: %s.",
			strings.TrimSpace(m.Stopped.Cause+" "+m.Stopped.Error)))
	}
	for _, repair := range m.Repaired {
		s.Text = append(s.Text, "It was repaired: "+strings.Join(repair.What, "; ")+".")
	}
	a := m.Account
	if a == nil {
		s.Text = append(s.Text, "Its metadata have no account of losses.")
		return s, nil
	}
	if found := m.RepairFound(); found != "" {
		s.Text = append(s.Text, upper(found)+".")
	} else {
		s.Text = append(s.Text, "Lost: "+present.Losses(a)+".")
	}
	if cost := present.Overhead(a); cost != "" {
		s.Text = append(s.Text, "Recording cost the model "+cost+".")
	}
	rows := [][]string{{"account", "tensors", "bytes"}}
	add := func(what string, packets, size uint64) {
		rows = append(rows, []string{what, strconv.FormatUint(packets, 10), present.Bytes(size)})
	}
	add("selected", a.Selected.Packets, a.Selected.Bytes)
	add("captured", a.Captured.Packets, a.Captured.Bytes)
	if a.Rotated != nil {
		add("rotated", a.Rotated.Packets, a.Rotated.Bytes)
	}
	for _, l := range a.Lost {
		add("lost: "+l.Cause, l.Packets, l.Bytes)
	}
	s.Tables = append(s.Tables, &titled{"Captured tensors", rows})
	return s, nil
}

// recordingSection is how the run was recorded.
func recordingSection(_ context.Context, r *Run, _ *tracks) (*section, error) {
	s := &section{ID: "recording", Title: "How it was recorded"}
	m := r.Metadata
	if m == nil {
		s.Missing = "The run has no metadata: it was ended before they were written"
		return s, nil
	}
	rows := [][]string{{"what", "value"}}
	add := func(what, text string) {
		if text != "" && text != "0" && text != "0 B" {
			rows = append(rows, []string{what, text})
		}
	}
	add("command", strings.Join(m.Command, " "))
	if !m.Created.IsZero() {
		add("began", m.Created.Format("2006-01-02 15:04:05 -0700"))
	}
	if !m.Ended.IsZero() {
		add("took", present.Duration(m.Ended.Sub(m.Created)))
	}
	add("model", strings.TrimSpace(m.Model.Name+" "+m.Model.FileType))
	add("architecture", m.Model.Arch)
	add("model file", m.Model.Path)
	add("parameters", present.Count(m.Model.NParams))
	for _, c := range m.Contexts {
		add(fmt.Sprintf("context %d", c.Ctx), contextText(&c))
	}
	add("llama.cpp", m.Llama.Version)
	add("backends", strings.Join(m.Llama.Backends, ", "))
	add("processor", m.Host.CPU)
	add("cores", strconv.Itoa(m.Host.Cores))
	add("memory", present.Bytes(m.Host.MemoryBytes))
	add("system", strings.TrimSpace(m.Host.OS+" "+m.Host.Kernel))
	add("llamatap", m.Llamatap)
	s.Tables = append(s.Tables, &titled{"Run", rows})
	rows = [][]string{{"recorder", "bytes", "command that reads it"}}
	for _, d := range r.data {
		rows = append(rows, []string{d.What, present.Bytes(d.Bytes), d.Command})
	}
	s.Tables = append(s.Tables, &titled{"Files", rows})
	rows = [][]string{{"setting", "value", "from"}}
	settings := r.settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if v := settings[name]; v.Source != "" && v.Source != "default" && v.Value != nil {
			rows = append(rows, []string{name, fmt.Sprint(v.Value), v.Source})
		}
	}
	if len(rows) > 1 {
		s.Tables = append(s.Tables, &titled{"Settings that are not the defaults", rows})
	}
	return s, nil
}

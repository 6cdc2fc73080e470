package tensors

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

// Width is the number of columns that text output fits into.
const Width = 100

// WriteText writes the summary as a head and a table per layer and component, 100 columns wide.
func (s *Summary) WriteText(w io.Writer) error {
	if err := s.writeHead(w); err != nil {
		return err
	}
	rows := [][]string{{" layer", "component", " tensors", " packets", " source", " raw", " stored", " ratio"}}
	for _, l := range s.Layers {
		for _, c := range l.Components {
			rows = append(rows, []string{layerText(l.Layer), s.componentText(c.Component), strconv.Itoa(c.Tensors),
				strconv.FormatInt(c.Packets, 10), sourceText(c.BytesSource), present.Bytes(c.BytesRaw),
				present.Bytes(c.BytesStored), ratioText(c.Ratio)})
		}
	}
	return present.Fit(w, rows, Width)
}

// WriteTensors writes the head and a table of every tensor.
func (s *Summary) WriteTensors(w io.Writer) error {
	if err := s.writeHead(w); err != nil {
		return err
	}
	rows := [][]string{{"tensor", "op", "component", "type", "shape", " packets", " tokens", " raw", " ratio"}}
	for _, l := range s.Layers {
		for i := range l.Tensors {
			x := &l.Tensors[i]
			rows = append(rows, []string{s.nameText(x), x.Op, s.componentText(x.Component), x.DType, shapeText(x.Shape),
				strconv.FormatInt(x.Packets, 10), strconv.FormatInt(x.Tokens, 10), present.Bytes(x.BytesRaw),
				ratioText(x.Ratio)})
		}
	}
	return present.Fit(w, rows, Width)
}

// WriteStats writes the head and a table of every tensor's statistics.
func (s *Summary) WriteStats(w io.Writer) error {
	if err := s.writeHead(w); err != nil {
		return err
	}
	rows := [][]string{{"tensor", " elements", " mean", " std", " min", " max", " l2", " sparsity", " nan", " inf"}}
	for _, l := range s.Layers {
		for i := range l.Tensors {
			rows = append(rows, s.statsRow(&l.Tensors[i]))
		}
	}
	return present.Fit(w, rows, Width)
}

func (s *Summary) statsRow(x *Tensor) []string {
	cells := []string{s.nameText(x), "-", "-", "-", "-", "-", "-", "-", "-", "-"}
	if x.Stats == nil {
		return cells
	}
	cells[1] = strconv.FormatUint(x.Stats.Elements, 10)
	cells[7] = strconv.FormatFloat(x.Stats.Sparsity, 'f', 4, 64)
	cells[8], cells[9] = strconv.FormatUint(x.Stats.NaN, 10), strconv.FormatUint(x.Stats.Inf, 10)
	if m := x.Stats.Moments; m != nil {
		for i, v := range []float64{m.Mean, m.Std, m.Min, m.Max, m.L2} {
			cells[2+i] = strconv.FormatFloat(v, 'g', 4, 64)
		}
	}
	return cells
}

// keyWidth is the column at which the head's values begin.
const keyWidth = 10

func (s *Summary) writeHead(w io.Writer) error {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-*s%s\n", keyWidth, key, fmt.Sprintf(format, args...))
	}
	line(string(s.Kind), "%s%s", s.Path, s.sealText())
	if s.Model != "" {
		line("model", "%s (%s)", s.Model, s.Arch)
	}
	line("packets", "%d", s.Packets)
	line("tokens", "%s", s.tokensText())
	line("bytes", "%s stored, %s raw, ratio %s%s", present.Bytes(s.BytesStored), present.Bytes(s.BytesRaw),
		ratioText(s.Ratio), s.takenText())
	if s.Error != (codec.Achieved{}) {
		line("error", "%s", errorText(s.Error))
	}
	for _, steering := range s.Steering {
		if steering.FirstExec != nil {
			line("steering", "%s", steering)
		}
	}
	line("losses", "%s", s.lossText())
	if s.Rotated != nil {
		line("rotated", "%s given back", s.Rotated)
	}
	if s.Moved != nil {
		line("moved", "%s are in %s alone", s.Moved, s.Moved.To)
	}
	if s.Account != nil {
		if text := present.Overhead(s.Account); text != "" {
			line("overhead", "%s", text)
		}
	}
	for _, damage := range s.Damage {
		line("DAMAGE", "%s", present.Wrap(damage, keyWidth, Width))
	}
	if s.Assumed != "" {
		line("assumed", "%s", present.Wrap(s.Assumed, keyWidth, Width))
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// errorText formats the error that a bounded codec made.
func errorText(e codec.Achieved) string {
	return fmt.Sprintf(
		"at most %.3g of a row's largest value, %.3g of its root mean square, as measured when it was packed", e.MaxAbs,
		e.NRMSE)
}

func (s *Summary) sealText() string {
	switch {
	case s.Kind != KindRun:
		return ""
	case s.Sealed:
		return " (sealed)"
	case s.broken:
		return " (NOT SEALED: manifest.json is damaged; not a result)"
	case s.Running:
		return " (still running)"
	}
	return " (NOT SEALED: cut off; not a result)"
}

func (s *Summary) takenText() string {
	if s.BytesSource == 0 {
		return ""
	}
	return ", " + present.Bytes(s.BytesSource) + " taken from tensors"
}

func (s *Summary) tokensText() string {
	if s.Tokens == 0 {
		return "not known"
	}
	var phases []string
	for phase := label.PhaseUnknown; phase <= label.PhaseTeardown; phase++ {
		if n := s.TokensByPhase[phase.String()]; n > 0 {
			phases = append(phases, fmt.Sprintf("%v %d", phase, n))
		}
	}
	text := strconv.FormatInt(s.Tokens, 10)
	if s.Tokens < s.computed {
		text += fmt.Sprintf(" of %d that were computed", s.computed)
	}
	if len(phases) > 0 {
		text += " (" + strings.Join(phases, ", ") + ")"
	}
	if s.Requests > 1 {
		text += fmt.Sprintf(" of %d requests", s.Requests)
	}
	return text + fmt.Sprintf(", %.4g packets and %s stored per token", s.PacketsPerToken,
		present.Bytes(int64(s.BytesPerToken+0.5)))
}

func (s *Summary) lossText() string {
	var parts []string
	losses := s.Losses
	if s.Account != nil && s.Account.Lossy() {
		parts, losses = append(parts, present.Losses(s.Account)), nil
	}
	for _, l := range losses {
		parts = append(parts, fmt.Sprintf("%s, %s: %s", present.Plural(l.Packets, "packet"),
			present.Bytes(int64(l.Bytes)), l.Cause))
	}
	if s.Lost && len(parts) == 0 {
		parts = append(parts, "the run is marked lossy")
	}
	switch {
	case len(parts) > 0:
	case s.Assumed != "":
		parts = append(parts, "not known")
	default:
		parts = append(parts, "none")
	}
	if s.Saturated+s.Underflown > 0 {
		parts = append(parts, fmt.Sprintf("%d values became infinite and %d became zero in conversion", s.Saturated,
			s.Underflown))
	}
	return strings.Join(parts, "; ")
}

// nameText is the tensor's name, with its context where there are several.
func (s *Summary) nameText(t *Tensor) string {
	if t.Ctx == 0 {
		return t.Name
	}
	return fmt.Sprintf("%s (ctx %d)", t.Name, t.Ctx)
}

// componentText is the component's name; unknown without an index.
func (s *Summary) componentText(c label.Component) string {
	if s.Assumed != "" {
		return "-"
	}
	return c.String()
}

func layerText(layer int) string {
	if layer == label.NoLayer {
		return "-"
	}
	return strconv.Itoa(layer)
}

func sourceText(n int64) string {
	if n == 0 {
		return "-"
	}
	return present.Bytes(n)
}

// shapeText writes a shape in ggml order, such as 128x7, with * where executions differ.
func shapeText(shape []int64) string {
	var b strings.Builder
	for i, n := range shape {
		if i > 0 {
			b.WriteByte('x')
		}
		if n == 0 {
			b.WriteByte('*')
		} else {
			fmt.Fprint(&b, n)
		}
	}
	return b.String()
}

func ratioText(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}

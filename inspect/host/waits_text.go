package host

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
)

// textTensors bounds the tables of the text: JSON has all rows.
const textTensors = 20

// sentence says what an execution waited for: "token 17 waited 98.0 ms of 120 ms on 1,150 faults and 61 block
// requests, most on blk.7.ffn_up.weight (31.0 ms), p99 9.03 ms".
func (r *WaitRow) sentence() string {
	var b strings.Builder
	b.WriteString(r.subject())
	if r.WaitNS == 0 {
		return b.String() + " waited for nothing"
	}
	fmt.Fprintf(&b, " waited %s of %s on %s", present.Nanoseconds(r.StalledNS),
		present.Nanoseconds(r.DurationNS), plural(r.Faults, "fault"))
	if r.Calls > 0 {
		fmt.Fprintf(&b, ", %s in system calls", plural(r.Calls, "wait"))
	}
	if r.Requests > 0 {
		b.WriteString(" and " + plural(r.Requests, "block request"))
	}
	if r.Most != nil && r.Most.WaitNS > 0 {
		fmt.Fprintf(&b, ", most on %s (%s)", placeName(r.Most), present.Nanoseconds(r.Most.WaitNS))
	}
	fmt.Fprintf(&b, ", p99 %s", present.Nanoseconds(r.P99NS))
	return b.String()
}

func (r *WaitRow) subject() string {
	switch {
	case r.Kind == resource.WaitInterval:
		return "the interval"
	case r.TokenFirst != nil && r.TokenCount == 1:
		return fmt.Sprintf("token %d", *r.TokenFirst)
	case r.TokenFirst != nil:
		return fmt.Sprintf("tokens %d to %d", *r.TokenFirst, *r.TokenFirst+int64(r.TokenCount)-1)
	case r.Exec != nil:
		return fmt.Sprintf("execution %d", *r.Exec)
	}
	return "an execution"
}

// placeName is a tensor's name, or a file's.
func placeName(p *resource.WaitPlace) string {
	switch {
	case strings.HasPrefix(p.File, "dev:"):
		return p.File
	case p.Tensor == "":
		return filepath.Base(p.File)
	case strings.HasPrefix(p.Tensor, "("):
		return filepath.Base(p.File) + " " + p.Tensor
	}
	return p.Tensor
}

// counted writes a number with commas.
func counted(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return counted(n) + " " + what
}

// WriteText writes the report for people.
func (w *Waits) WriteText(out io.Writer) error {
	var b strings.Builder
	f := &w.Total.WaitFigures
	fmt.Fprintf(&b, "%s\n%s waited, in all threads, on %s (%s major) and %s in system calls; %s, %s\n", w.Lines.Path,
		present.Nanoseconds(f.WaitNS), plural(f.Faults, "fault"),
		counted(f.Major), plural(f.Calls, "wait"), plural(f.Requests, "block request"), present.Bytes(f.BlockBytes))
	w.writePhases(&b)
	if len(w.Slowest) > 0 {
		b.WriteString("\nslowest\n")
		for _, i := range w.Slowest {
			wrap(&b, "  ", w.Rows[i].sentence())
		}
	}
	w.writePlaces(&b)
	w.writeLayers(&b)
	w.writeMemory(&b)
	if o := w.Order; o != nil {
		fmt.Fprintf(&b, "\n%d tensors were touched for the first time; %d of them in the order of their graph\n",
			o.Tensors, o.InOrder)
	}
	for i, note := range w.Notes {
		if i == 0 {
			b.WriteString("\n")
		}
		wrap(&b, "note: ", note)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// figureHead and figureCells are the columns that the tables have in common.
var figureHead = []string{" waited", " faults", " major", " blocked", " calls", " requests", " read"}

func figureCells(f *resource.WaitFigures) []string {
	return []string{present.Nanoseconds(f.WaitNS), counted(f.Faults), counted(f.Major),
		present.Nanoseconds(f.BlockedNS), counted(f.Calls),
		counted(f.Requests), present.Bytes(f.BlockBytes)}
}

func (w *Waits) writePhases(b *strings.Builder) {
	t := grid{append([]string{"phase", " lines", " tokens", " time", " standing still", " share"}, figureHead...)}
	for i := range w.Phases {
		p := &w.Phases[i]
		share := "-"
		if p.DurationNS > 0 {
			share = present.Percent(float64(p.StalledNS) / float64(p.DurationNS))
		}
		row := []string{p.Phase, strconv.FormatInt(p.Lines, 10), strconv.FormatInt(p.Tokens, 10),
			present.Nanoseconds(p.DurationNS), present.Nanoseconds(p.StalledNS), share}
		t = append(t, append(row, figureCells(&p.WaitFigures)...))
	}
	t.write(b)
}

func (w *Waits) writePlaces(b *strings.Builder) {
	if len(w.Tensors) == 0 {
		return
	}
	t := grid{append([]string{"tensor or file", " share"}, figureHead...)}
	for i := range w.Tensors[:min(len(w.Tensors), textTensors)] {
		p := &w.Tensors[i]
		share := "-"
		if w.Total.WaitNS > 0 {
			share = present.Percent(float64(p.WaitNS) / float64(w.Total.WaitNS))
		}
		t = append(t, append([]string{placeName(&p.WaitPlace), share}, figureCells(&p.WaitFigures)...))
	}
	t.write(b)
	if n := len(w.Tensors) - textTensors; n > 0 {
		fmt.Fprintf(b, "and %d more; --json has all\n", n)
	}
}

func (w *Waits) writeLayers(b *strings.Builder) {
	if len(w.Layers) == 0 {
		return
	}
	t := grid{append([]string{"layer"}, figureHead...)}
	for i := range w.Layers {
		l := &w.Layers[i]
		t = append(t, append([]string{strconv.Itoa(l.Layer)}, figureCells(&l.WaitFigures)...))
	}
	t.write(b)
}

// memoryKinds are in the order of the text.
var memoryKinds = []string{"anonymous", "heap", "stack", "shared", "private"}

func (w *Waits) writeMemory(b *strings.Builder) {
	t := grid{append([]string{"memory of no file"}, figureHead...)}
	for _, kind := range memoryKinds {
		if f := w.Total.Memory[kind]; f != nil {
			t = append(t, append([]string{kind}, figureCells(f)...))
		}
	}
	if len(t) > 1 {
		t.write(b)
	}
}

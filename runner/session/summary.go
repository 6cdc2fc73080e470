//go:build linux

package session

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
)

// Pace is tokens and the time that they took.
type Pace struct{ Tokens, NS int64 }

// Summary is what a run did, in a few figures. All are measured.
type Summary struct {
	Account           rundir.Account
	Prompt, Generated int64
	// Drafts are rows that a draft model computed, Rejected those of the model that were drafts and taken back.
	Drafts, Rejected int64
	// Prefill and Decode are what rates are of: tokens that this process computed in graphs without tokens of
	// another phase, and the time of those graphs.
	Prefill, Decode Pace
	Tensors         bool   // were asked for, or captured by a command
	RawBytes        uint64 // of the captured tensors in the stored element type
	StoredBytes     uint64
	Stopped         *rundir.Stopped // recording ended before the program did
	Rotated         *rundir.Rotated // what was given back; nil: nothing was
	Moved           *rundir.Moved   // what is in object storage alone; nil: nothing is
	// Beside is what was recorded beside tensors, a line each.
	Beside []string
	Paths  []capture.Path // how tensors were captured
	// limited is true if --tap-device-memory was given, and not to stop the graph for each tensor.
	limited bool
	// Want is the rate in bytes of tensors per second below which the summary says what held the capture back; 0 =
	// none.
	Want float64
	pack time.Duration
	disk time.Duration
	hash time.Duration
}

// Write prints the summary; dir is the run directory.
func (s Summary) Write(out io.Writer, dir string) {
	if dir == "" {
		return // remarks say why
	}
	a := &s.Account
	title := "llamatap"
	line := func(key, text string) {
		fmt.Fprintf(out, "%-8s  %-8s  %s\n", title, key, text)
		title = ""
	}
	fmt.Fprintln(out)
	if a.Lossy() {
		line("LOST", present.Losses(a))
	}
	line("tokens", fmt.Sprintf("%d prompt%s, %d decoded%s", s.Prompt, s.Prefill.rate(), s.Generated, s.Decode.rate()))
	if s.Drafts+s.Rejected > 0 {
		line("drafts", fmt.Sprintf("%s computed by the draft model, %d by the model and rejected",
			present.Plural(s.Drafts, "token"),
			s.Rejected))
	}
	if s.Tensors {
		recorded := a.Recorded()
		text := fmt.Sprintf("%s, %s, stored as %s%s", present.Plural(recorded.Packets, "tensor"),
			present.Bytes(recorded.Bytes), present.Bytes(s.StoredBytes), s.ratios())
		if !a.Lossy() {
			text += ", nothing lost"
		}
		line("captured", text)
	}
	if s.Rotated != nil {
		text := fmt.Sprintf("%s: %s given back", s.Rotated, present.Bytes(uint64(s.Rotated.Bytes)))
		if a.Rotated != nil {
			text += fmt.Sprintf("; %d tensors, %s, are there", a.Captured.Packets, present.Bytes(a.Captured.Bytes))
		}
		line("rotated", text)
	}
	if s.Moved != nil {
		line("moved", fmt.Sprintf("%s, %s, to %s", s.Moved, present.Bytes(uint64(s.Moved.Bytes)), s.Moved.To))
	}
	for _, text := range s.Beside {
		key, text, _ := strings.Cut(text, " ")
		line(key, strings.TrimLeft(text, " "))
	}
	if text := present.Overhead(a); text != "" {
		line("overhead", text)
	}
	if text := s.cutFor(); text != "" {
		line("cut for", text)
	}
	s.heldBack(out)
	if s.Stopped != nil {
		text := s.Stopped.Cause + lastToken(s.Stopped)
		if s.Stopped.GraphsAfter > 0 {
			text += fmt.Sprintf("; %d graphs computed since, of which nothing is known", s.Stopped.GraphsAfter)
		}
		if s.Stopped.Whole {
			text += "; nothing is missing: the last write was completed from the reserve"
		}
		line("stopped", text)
	}
	line("run", dir)
}

// maxCutNames is how many names of tensors for which the graph was stopped the summary prints.
const maxCutNames = 4

// cutFor names the tensors for which the graph was stopped, where others needed no stop, or a limit was too low for
// any.
func (s Summary) cutFor() string {
	var names []string
	whole, cut := int64(0), int64(0)
	for _, p := range s.Paths {
		whole, cut = whole+p.Whole, cut+p.Cut
		if p.Cut > 0 {
			names = append(names, p.Tensor)
		}
	}
	if len(names) == 0 || whole == 0 && !s.limited {
		return ""
	}
	more := ""
	if n := len(names) - maxCutNames; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%d of %d tensors: %s%s; a larger --tap-device-memory avoids those of its limit",
		cut, whole+cut, strings.Join(names[:min(len(names), maxCutNames)], ", "), more)
}

// heldBack says what kept the capture under the preset's rate, if anything did.
func (s Summary) heldBack(out io.Writer) {
	wall, waited := s.Account.Time.WallNS, s.Account.Time.WaitNS
	if s.Want == 0 || wall == 0 {
		return
	}
	rate := float64(s.Account.Recorded().Bytes) / (float64(wall) / 1e9)
	if rate >= s.Want {
		return
	}
	why := "the model made no more"
	switch {
	case len(s.Account.Lost) > 0:
		why = "what was lost does not count"
	case waited > wall/20 && s.disk > max(s.pack, s.hash):
		why = "the disk held it back"
	case waited > wall/20 && s.hash > s.pack:
		why = "hashing for the manifest held it back"
	case waited > wall/20:
		why = "packing and compression held it back"
	}
	fmt.Fprintf(out, "          rate      %.2f GB/s of tensors; the preset aims at %.1f: %s\n", rate/1e9, s.Want/1e9,
		why)
}

func lastToken(s *rundir.Stopped) string {
	if s.LastToken == nil {
		return ""
	}
	return fmt.Sprintf(" after token %d", *s.LastToken)
}

// rate is absent where nothing was computed in graphs of the phase alone.
func (p Pace) rate() string {
	if p.Tokens <= 0 || p.NS <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%.1f tokens/s)", float64(p.Tokens)/(float64(p.NS)/1e9))
}

// ratios are both ratios that people mean: against the tensors as the model computed them, and against their stored
// element type, which is the codec's own share.
func (s Summary) ratios() string {
	if s.StoredBytes == 0 {
		return ""
	}
	return fmt.Sprintf(" (ratio %.2f, the codec's share %.2f)",
		float64(s.Account.Recorded().Bytes)/float64(s.StoredBytes), float64(s.RawBytes)/float64(s.StoredBytes))
}

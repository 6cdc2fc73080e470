//go:build linux

package session

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
)

// Summary is what a run did, in a few figures. All are measured.
type Summary struct {
	Prompt, Generated int64
	Before            struct{ Prompt, Generated int64 } // of these, that this process did not compute: the run is gone on with
	PrefillNS         int64                             // time in prompt graphs
	DecodeNS          int64                             // time in graphs that made one token each
	WallNS            int64                             // first graph entry to last graph end
	Tensors           bool                              // were asked for, or captured by a command
	Packets           uint64
	SourceBytes       uint64 // taken from tensors
	RawBytes          uint64 // of the same in the stored element type
	StoredBytes       uint64
	Lost              []collect.Loss
	Stopped           *rundir.Stopped // recording ended before the program did
	OwnNS             int64           // the tap on the model's threads
	WaitNS            int64           // the model waiting for the recording
	// Beside is what was recorded beside tensors, a line each.
	Beside []string
	// Want is the rate in bytes of tensors per second below which the summary says what held the capture back; 0 = none.
	Want float64
	pack time.Duration
	disk time.Duration
	hash time.Duration
}

func (s *sink) summary() Summary {
	if s.recorder == nil || s.dir == nil {
		return Summary{}
	}
	use, stats, written := s.recorder.Use(), s.stats(), s.written()
	summary := Summary{
		Prompt: use.Rows[ggmlhooks.PhasePrefill], Generated: use.Rows[ggmlhooks.PhaseDecode],
		PrefillNS: use.NS[ggmlhooks.PhasePrefill], DecodeNS: use.NS[ggmlhooks.PhaseDecode], WallNS: use.LastNS - use.FirstNS,
		Tensors: s.o.Tap.Records(config.Activations) || written.Packets > 0,
		Packets: written.Packets, SourceBytes: written.SrcBytes, RawBytes: written.RawBytes, StoredBytes: written.Stored, Lost: s.lost(stats.Losses), Stopped: s.stopped(),
		Beside: s.beside(), OwnNS: int64(stats.Own()), WaitNS: int64(stats.WaitNS), Want: s.o.Tap.Throughput * 1e9,
		pack: time.Duration(written.PackNS), disk: time.Duration(written.WriteNS), hash: time.Duration(written.HashNS),
	}
	if s.before != nil {
		summary.Before.Prompt, summary.Before.Generated = s.before.prompt, s.before.generated
	}
	return summary
}

// lost is what the tap has lost while it was recorded.
func (s *sink) lost(losses []collect.Loss) []collect.Loss {
	if s.halted == nil {
		return losses
	}
	return slices.DeleteFunc(losses, func(l collect.Loss) bool { return l.Cause == causeGone })
}

// Write prints the summary; dir is the run directory.
func (s Summary) Write(out io.Writer, dir string) {
	if dir == "" {
		return // remarks tell why
	}
	prompt, generated := s.Prompt-s.Before.Prompt, s.Generated-s.Before.Generated
	tokens := prompt + generated
	fmt.Fprintf(out, "\nllamatap  tokens    %d prompt%s, %d generated%s\n", s.Prompt, rate(prompt, s.PrefillNS), s.Generated, rate(generated, s.DecodeNS))
	if s.Tensors {
		fmt.Fprintf(out, "          captured  %d tensors, %s, stored as %s%s, %s\n",
			s.Packets, present.Bytes(s.SourceBytes), present.Bytes(s.StoredBytes), s.ratios(), lost(s.Lost))
	} else if len(s.Lost) > 0 {
		fmt.Fprintf(out, "          %s\n", lost(s.Lost))
	}
	for _, line := range s.Beside {
		fmt.Fprintf(out, "          %s\n", line)
	}
	if tokens > 0 && s.WallNS > 0 {
		fmt.Fprintf(out, "          overhead  %.2f %% of the run, %.1f µs per token in the tap; %.1f µs per token waiting for the recording\n",
			100*float64(s.OwnNS)/float64(s.WallNS), float64(s.OwnNS)/1e3/float64(tokens), float64(s.WaitNS)/1e3/float64(tokens))
	}
	s.heldBack(out)
	if s.Stopped != nil {
		fmt.Fprintf(out, "          stopped   %s%s; %d graphs computed since\n", s.Stopped.Cause, lastToken(s.Stopped), s.Stopped.GraphsAfter)
	}
	fmt.Fprintf(out, "          run       %s\n", dir)
}

// heldBack says what kept the capture under the preset's rate, if anything did.
func (s Summary) heldBack(out io.Writer) {
	if s.Want == 0 || s.WallNS == 0 {
		return
	}
	rate := float64(s.SourceBytes) / (float64(s.WallNS) / 1e9)
	if rate >= s.Want {
		return
	}
	why := "the model made no more"
	switch {
	case len(s.Lost) > 0:
		why = "a full pool held it back, and what was lost does not count"
	case s.WaitNS > s.WallNS/20 && s.disk > max(s.pack, s.hash):
		why = "the disk held it back"
	case s.WaitNS > s.WallNS/20 && s.hash > s.pack:
		why = "hashing for the manifest held it back"
	case s.WaitNS > s.WallNS/20:
		why = "packing and compression held it back"
	}
	fmt.Fprintf(out, "          rate      %.2f GB/s of tensors; the preset aims at %.1f: %s\n", rate/1e9, s.Want/1e9, why)
}

func lastToken(s *rundir.Stopped) string {
	if s.LastToken == nil {
		return ""
	}
	return fmt.Sprintf(" after token %d", *s.LastToken)
}

func rate(n, ns int64) string {
	if n == 0 || ns <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%.1f tokens/s)", float64(n)/(float64(ns)/1e9))
}

// ratios are both ratios that people mean: against the tensors as the model computed them, and against their stored element type,
// which is the codec's own share.
func (s Summary) ratios() string {
	if s.StoredBytes == 0 {
		return ""
	}
	return fmt.Sprintf(" (ratio %.2f, the codec's share %.2f)", float64(s.SourceBytes)/float64(s.StoredBytes), float64(s.RawBytes)/float64(s.StoredBytes))
}

func lost(losses []collect.Loss) string {
	if len(losses) == 0 {
		return "nothing lost"
	}
	text := "LOST"
	for i, l := range losses {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %d to %s (%s)", l.Packets, l.Cause, present.Bytes(l.Bytes))
	}
	return text
}

package config

import (
	"fmt"
	"strconv"
)

// Checkpoint says how often a run writes a checkpoint.
type Checkpoint struct {
	Every int    // tokens; 0: never
	Path  string // of the checkpoint file; "": in the run directory
	State bool   // llama.cpp's memory is kept too, so that nothing needs to be computed again
}

// ResumeNewest is the value of --tap-resume that stands for the newest run below --tap-out that did not end by itself.
const ResumeNewest = "newest"

func checkpointOptions() []option {
	return []option{
		{name: "checkpoint-every", form: "N", role: roleModifier, recorder: Activations,
			help: "write a checkpoint every N tokens, and at the end, from which 'llamatap run --tap-resume RUNDIR' resumes; what was recorded up to it is synced",
			set:  setCheckpointEvery,
			get:  func(t *Tap) any { return positive(t.Checkpoint.Every) }},
		{name: "checkpoint-path", form: "FILE", role: roleModifier, recorder: Activations,
			help: "file of the checkpoint instead of activations.stream.ckpt.json in the run directory",
			set:  func(t *Tap, s string) error { t.Checkpoint.Path = s; return nil },
			get:  func(t *Tap) any { return text(t.Checkpoint.Path) }},
		{name: "checkpoint-state", form: "[=on|off]", bare: "on", follows: isSwitchWord, role: roleModifier, recorder: Activations,
			help: "checkpoints hold llama.cpp's memory too, so that a resumed run recomputes nothing; each costs the time and space of writing it (llamatap run, one prompt)",
			set: func(t *Tap, s string) (err error) {
				t.Checkpoint.State, err = parseSwitch("checkpoint-state", s)
				return err
			},
			get: func(t *Tap) any { return onOff(t.Checkpoint.State) }},
		{name: "resume", form: "[=RUNDIR|FILE]", bare: ResumeNewest, follows: isNoFlag, role: roleRun,
			help: "resume an interrupted run, by its directory or its checkpoint file; alone it is the newest such one below --tap-out. " +
				"Without other arguments those of that run are taken (llamatap run only)",
			set: func(t *Tap, s string) error { t.Resume = s; return nil },
			get: func(t *Tap) any { return text(t.Resume) }},
	}
}

func setCheckpointEvery(t *Tap, s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		return fmt.Errorf("checkpoint interval %q: write a number of tokens above 0", s)
	}
	t.Checkpoint.Every = n
	return nil
}

// positive is a number for Echo, or nothing.
func positive(n int) any {
	if n <= 0 {
		return nil
	}
	return n
}

// checkCheckpoint refuses what cannot be: a file for checkpoints that nobody makes, and checkpoints of what cannot
// be repeated.
func (t *Tap) checkCheckpoint() error {
	switch {
	case t.Checkpoint.Path != "" && t.Checkpoint.Every == 0:
		return fmt.Errorf("%s names a file for checkpoints, and there are none: add --tap-checkpoint-every N", t.origins["checkpoint-path"].where)
	case t.Checkpoint.State && t.Checkpoint.Every == 0:
		return fmt.Errorf("%s is about checkpoints, and there are none: add --tap-checkpoint-every N", t.origins["checkpoint-state"].where)
	case t.Checkpoint.Every == 0:
		return nil
	case t.Overflow == OverflowDrop:
		return fmt.Errorf("%s: a run that may drop tensors cannot be resumed as it was: use --tap-overflow block", t.origins["checkpoint-every"].where)
	case t.Segments() != Segment{}:
		return fmt.Errorf("%s: a run in segments is not resumed, its sealed segments are results: leave out --tap-segment, or the checkpoints", t.origins["checkpoint-every"].where)
	}
	return nil
}

// Resuming returns the interrupted run that the flags ask to resume, before Resolve; "" is none.
func (t *Tap) Resuming() string { return t.flags["resume"].text }

// OnlyResumes reports whether no other flag of the tap was given than the one that resumes, and where runs are.
func (t *Tap) OnlyResumes() bool {
	for name := range t.flags {
		if name != "resume" && name != "out" {
			return false
		}
	}
	return t.Resuming() != ""
}

package config

import "math"

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
		{name: "checkpoint-every", form: "N", modifies: Activations,
			help: "write a checkpoint every N tokens, and at the end, from which 'llamatap run --tap-resume RUNDIR' " +
				"resumes; what was recorded up to it is synced",
			field: whole(func(t *Tap) *int { return &t.Checkpoint.Every }, 1, math.MaxInt,
				"checkpoint interval %q: write a number of tokens above 0")},
		{name: "checkpoint-path", form: "FILE", modifies: Activations,
			help:  "file of the checkpoint instead of activations.stream.ckpt.json in the run directory",
			field: plain(func(t *Tap) *string { return &t.Checkpoint.Path })},
		{name: "checkpoint-state", modifies: Activations,
			help: "checkpoints hold llama.cpp's memory too, so that a resumed run recomputes nothing; each costs " +
				"the time and space of writing it (llamatap run, one prompt)",
			onOff: func(t *Tap) *bool { return &t.Checkpoint.State }},
		{name: "resume", form: "[=RUNDIR|FILE]", bare: ResumeNewest, follows: isNoFlag, role: roleRun,
			help: "resume an interrupted run, by its directory or its checkpoint file; alone it is the newest such " +
				"one below --tap-out. Without other arguments those of that run are taken (llamatap run only)",
			field: plain(func(t *Tap) *string { return &t.Resume })},
	}
}

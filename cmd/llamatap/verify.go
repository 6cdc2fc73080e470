package main

import (
	"fmt"
	"io"

	"github.com/llamatap/llamatap/inspect/repair"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/internal/terminal"
)

const verifyHelp = `llamatap verify: whether a capture is whole

usage: llamatap verify DIR|FILE.stream [--repair] [--json]

Compares every file of a run directory with its manifest (size and SHA-256), every packet of the stream with the index (place, name,
size, CRC-32C), and the tokens file with the index; and reports every loss that was recorded. The exit status is 0 only if the
directory is sealed, nothing is damaged and nothing was lost, and 1 otherwise.

With --repair what can be made whole is, first: a torn end is cut off behind the last commit, a damaged index is made anew from what is
left of it and from the stream, tokens from the index, and the run is sealed. Nothing is thrown away: what was replaced or cut off
stays beside it as .orig and .cut. The check afterwards, and the exit status, are of what is there then; what a repair could not
bring back counts as lost.

flags:
`

// runVerify checks a run directory.
func runVerify(args []string) error {
	flags := newFlags("verify", verifyHelp)
	asJSON := flags.Bool("json", false, "write JSON")
	mend := flags.Bool("repair", false, "make whole what can be, before it is checked")
	path, err := parseRunPath(flags, args)
	if err != nil || path == "" {
		return err
	}
	if *mend {
		what, err := repair.Repair(path, version)
		for _, w := range what {
			fmt.Fprintf(terminal.Err, "repair   %s\n", w)
		}
		if err != nil {
			return err
		}
	}
	bar := present.NewProgress(progressTerminal(true), "verifying")
	v, err := tensors.VerifyWith(path, bar.Set)
	bar.Done()
	if err != nil {
		return err
	}
	if *asJSON {
		err = writeJSON(terminal.Out, v)
	} else {
		err = describeVerification(terminal.Out, v)
	}
	if err == nil && !v.OK {
		err = exitStatus{Code: 1}
	}
	return err
}

// describeVerification writes one line per finding and a last line with the verdict.
func describeVerification(out io.Writer, v *tensors.Verification) error {
	for _, f := range v.Findings {
		if _, err := fmt.Fprintf(out, "%-8s %s\n", f.Kind, f.What); err != nil {
			return err
		}
	}
	verdict := "FAILED"
	if v.OK {
		verdict = "ok"
	}
	_, err := fmt.Fprintf(out, "%-8s %s: %d files, %d packets, %d tokens compared\n", verdict, v.Path, v.Files, v.Packets, v.Tokens)
	return err
}

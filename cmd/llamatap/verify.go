package main

import (
	"fmt"
	"io"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/object"
)

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name: "verify", Summary: "check a run: checksums, index against stream, tokens, losses",
		Usage: "[RUN|FILE.stream] [--repair] [--json]", Max: 1,
		Text: `Compares every file of a run directory with its manifest (size and SHA-256), every packet of the stream
with the index (place, name, size, CRC-32C), and the tokens file with the index; and reports every loss that was
recorded. The exit status is 0 only if the directory is sealed, nothing is damaged and nothing was lost, and 1
otherwise.

--repair first restores what it can: it cuts a torn end off after the last commit, rebuilds a damaged index from what
is left of it and from the stream, tokens from the index, and seals the run. Nothing is thrown away: what was replaced
or cut off stays next to it as .orig and .cut. The check and the exit status are of the repaired run; what a repair
could not restore counts as lost.
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			mend := false
			f.Add("--repair", &mend, "repair what can be repaired before the check")
			form.define(f, "text", "json")
			return func(args []string) error {
				if mend && len(args) > 0 && object.Is(args[0]) {
					return cli.Wrongf("--repair %s: repair the run where it was recorded, then push it again", args[0])
				}
				path, err := findRun(args...)
				if err != nil {
					return err
				}
				if mend {
					what, err := tensors.Repair(path, version)
					for _, w := range what {
						fmt.Fprintf(present.Err, "repair   %s\n", w)
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
				err = form.writeAs(v, forms{"text": func(out io.Writer) error { return describeVerification(out, v) }})
				if err == nil && !v.OK {
					err = exitStatus{Code: 1}
				}
				return err
			}
		},
	}
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
	_, err := fmt.Fprintf(out, "%-8s %s: %s, %s, %s compared\n", verdict, v.Path,
		present.Plural(v.Files, "file"), present.Plural(v.Packets, "packet"), present.Plural(v.Tokens, "token"))
	return err
}

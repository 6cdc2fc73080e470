package config

import (
	"slices"

	"github.com/llamatap/llamatap/internal/cli"
)

// tapGroups are the headings of help, by role.
var tapGroups = map[role]string{
	roleRecorder: "What is recorded (each of these starts a recorder, and a run directory is made)",
	roleModifier: "How it is recorded (these record nothing by themselves)",
	roleRun:      "The run as a whole, and the settings themselves",
}

// usualTap are the settings that the help of run and exec lists; --help-all lists the others, too.
var usualTap = []string{
	"preset", "layers", "tensors", "points", "attention", "resource-level", "kv", "ledger", "host", "steer", "tokens",
	"codec", "out", "resume",
}

// DefineTap adds every --tap-… flag, for help and completion: [SplitTapArgs] and [Tap.Parse] read them.
func DefineTap(f *cli.Flags) {
	for _, role := range []role{roleRecorder, roleModifier, roleRun} {
		for i := range tapOptions {
			if o := &tapOptions[i]; o.role == role {
				flag := o.cli()
				flag.Group, flag.More = tapGroups[role], !slices.Contains(usualTap, o.name)
				f.List = append(f.List, flag)
			}
		}
	}
}

package main

import (
	"errors"
	"fmt"
)

const hostHelp = `llamatap host: what the kernel did while the model ran

usage: llamatap host analyze [DIR|FILE] [FLAGS]

  analyze   latencies of block devices, their queues, and what goes with them: text, JSON, charts

'llamatap host COMMAND --help' tells more of one.
`

// runHost picks a command of host.
func runHost(args []string) error {
	switch {
	case len(args) == 0:
		return exitStatus{Code: 2, Err: errors.New("host needs a command: 'llamatap host analyze'; 'llamatap host --help' tells more")}
	case args[0] == "-h" || args[0] == "--help":
		_, err := fmt.Print(hostHelp)
		return err
	case args[0] == "analyze":
		return runHostAnalyze(args[1:])
	}
	return exitStatus{Code: 2, Err: fmt.Errorf("unknown %.40q: there is 'llamatap host analyze'", args[0])}
}

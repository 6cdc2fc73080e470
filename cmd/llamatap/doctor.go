package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/llamatap/llamatap/runner/doctor"
)

// runDoctor prints what the machine lets llamatap record, as lines or as JSON.
func runDoctor(args []string) error {
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print a list of {topic,name,status,value,costs,remedy}")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return exitStatus{Code: 2}
	}
	if flags.NArg() > 0 {
		return exitStatus{Code: 2, Err: fmt.Errorf("doctor takes no argument, got %q", flags.Arg(0))}
	}
	facts := doctor.Examine(os.DirFS("/"))
	if *asJSON {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		return out.Encode(facts)
	}
	for _, f := range facts {
		fmt.Printf("%-8s %-9s %-20s %s\n", f.Status, f.Topic, f.Name, f.Value)
		if f.Costs != "" {
			fmt.Printf("%18s costs: %s; remedy: %s\n", "", f.Costs, f.Remedy)
		}
	}
	return nil
}

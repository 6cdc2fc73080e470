package main

import (
	"context"
	"fmt"
	"io"

	runreport "github.com/llamatap/llamatap/inspect/report"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/present"
)

// maxVerdictBytes is how much of a run's files is read for the verdict at its end: less than a second's work of one
// CPU.
const maxVerdictBytes = 64 << 20

// writeVerdict ends the summary of a sealed run that recorded resource events: it prints the verdict of 'llamatap
// report', or for a run that takes longer to read, names that command. Once ctx is done it returns at once.
func writeVerdict(ctx context.Context, out io.Writer, dir string) {
	if !resources.HasLog(dir) {
		return
	}
	line := func(text string) { fmt.Fprintf(out, "          verdict   %s\n", text) }
	if size := runreport.Size(dir); size > maxVerdictBytes {
		line(fmt.Sprintf("%s of events: 'llamatap report' reads them", present.Bytes(size)))
		return
	}
	verdict := make(chan string, 1)
	go func() {
		made, err := runreport.Make(ctx, dir, nil)
		if err != nil {
			verdict <- fmt.Sprintf("unknown: %v", err)
			return
		}
		verdict <- made.Verdict
	}()
	select {
	case text := <-verdict:
		if ctx.Err() == nil {
			line(text)
		}
	case <-ctx.Done():
	}
}

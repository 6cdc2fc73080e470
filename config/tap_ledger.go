package config

import (
	"slices"
	"time"
)

// The ways of --tap-ledger.
const (
	LedgerRows    = "rows"    // every access is a row
	LedgerWindows = "windows" // accesses are summed up by region and window of time
)

// The bounds of --tap-ledger-window.
const (
	defaultLedgerWindow = time.Second
	minLedgerWindow     = time.Millisecond
	maxLedgerWindow     = time.Hour
)

func ledgerOptions() []option {
	return []option{
		{name: "ledger", form: "[=rows|windows|off]", bare: LedgerRows, follows: isLedgerWord, recorder: Ledger,
			help: "record what every operation read and wrote in memory, exactly, to trace.parquet: rows (each " +
				"access; also when it stands alone) or windows (sums by region and time)",
			field: parsed(func(t *Tap) *string { return &t.Ledger }, parseLedger)},
		{name: "ledger-window", form: "DURATION", modifies: Ledger, byDef: defaultLedgerWindow.String(),
			help: "with windows: how long one is, such as 100ms",
			field: span(func(t *Tap) *time.Duration { return &t.LedgerWindow }, minLedgerWindow, maxLedgerWindow,
				"ledger window %q: write a time from "+minLedgerWindow.String()+" to "+maxLedgerWindow.String()+
					", such as 100ms")},
	}
}

func isLedgerWord(next string) bool {
	return slices.Contains([]string{LedgerRows, LedgerWindows, "off"}, next)
}

func parseLedger(s string) (string, error) {
	if s == "off" {
		return "", nil
	}
	return oneOf("ledger", s, []string{LedgerRows, LedgerWindows, "off"})
}

// needRegions are the recorders whose rows name regions of the map of memory.
var needRegions = []Recorder{Ledger, Samples}

// imply adds the recorders that others need.
func imply(running []Recorder) []Recorder {
	needs := func(r Recorder) bool { return slices.Contains(needRegions, r) }
	if slices.ContainsFunc(running, needs) && !slices.Contains(running, Regions) {
		return append(running, Regions)
	}
	return running
}

// Package session conducts one recorded run: it makes the shared memory, starts the model's process, pours what the
// tap reports into a run directory, and seals it, whatever way the process ended.
//
// The directory is made when the model's first context is known, for it bears the model's name. A run that fails
// before anything was recorded leaves none.
//
// A run is one segment, or a series of them, each sealed beside the recording of the next. Recording may end before
// the program does: at a bound of the disk, or because it fails. Then it is halted: the program goes on as without
// a tap, and what was recorded is made whole.
package session

// TurnsVariable is the environment variable with which llamatap bench records in alternation of so many tokens, see
// collect.Options.
const TurnsVariable = "LLAMATAP_BENCH_TURNS"

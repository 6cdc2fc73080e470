// Package session conducts one recorded run: it makes the shared memory, starts the model's process, pours what the
// tap reports into a run directory, and seals it, whatever way the process ended.
//
// Reports go from the reader through steering, which takes commands and follows what is selected, to the sink, which
// opens everything with the first context and hands reports to the recorder of tensors and to the recorders of the
// rest. Tensors and tokens go through the output, or the replay of a resumed run, into the files: the current segment
// and the series before it, within the room of the disk. The counter counts what was computed and why recording ended;
// the report says what became of it all. All of them use the run: what was asked for, its process and its directory.
//
// The directory is made when the model's first context is known, for it bears the model's name. A run that fails
// before anything was recorded leaves none.
//
// A run is one segment, or a series of them, each sealed beside the recording of the next. Recording may end before
// the program does: at a bound of the disk, or because it fails. Then it is halted: the program continues as without
// a tap, and what was recorded is made whole.
package session

// Package session conducts one recorded run: it makes the shared memory, starts the model's process, pours what the tap reports
// into a run directory, and seals it, whatever way the process ended.
//
// The directory is made when the model's first context is known, for it bears the model's name. A run that fails before anything
// was recorded leaves none.
package session

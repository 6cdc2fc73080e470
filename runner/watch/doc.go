// Package watch asks host collectors once an interval and writes what they say as JSON lines: to files of their
// own, as system A's tracers did, or into a run directory.
package watch

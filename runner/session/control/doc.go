// Package control is the socket in a run directory by which a run is asked and told things while it goes on: the
// protocol (docs/CONTROL.md), the collector's end and the client's.
package control

// Package control is the socket in a run directory by which a live run is queried and controlled: the
// protocol (docs/CONTROL.md), the collector's end and the client's.
package control

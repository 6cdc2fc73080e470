// Package server shows runs over HTTP: their resource events line by line, as they are and while they grow, what
// the events sum up to as metrics of Prometheus, and LRI's routes. It reads files; what acts on a run goes
// through functions that it is given. See docs/SERVE.md for the routes.
package server

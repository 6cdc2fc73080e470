// Package collect is the other end of the tap: it owns the memory shared with the model's process, reads the
// records that the tap writes there, leases tensor slots to the codec workers and gives them back.
//
// # Data flow
//
// The tap (cgo/tap, C, in the model's process) writes records into a queue and tensor bytes into slots. A Reader
// decodes the records into the words of package ggmlhooks and hands them to a Sink; a tensor's bytes are handed
// over as a lease, which its receiver ends when they are packed. Nothing is copied on the way.
//
// # Promises
//
// Under policy block nothing is lost: the model waits for room. Under policy drop every loss is counted by cause,
// in the shared memory, by the tap itself. What was published before the model died, even by SIGKILL, is read.
package collect

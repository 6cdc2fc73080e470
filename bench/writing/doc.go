// Package writing measures how fast a recording is written: one producer hands real activations to a store/stream
// writer again and again, as the collector does with what the tap copied, for every codec, to a disk and to
// nowhere.
//
// A round measures the limits of the machine first (raw direct writes, SHA-256 and copying, each on one thread) and
// then every case for the same time, from the first tensor until the files are synced and closed. Cases and limits
// of a round are compared with each other, so what changes with time on a machine meets both.
package writing

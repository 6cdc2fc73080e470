// Package resource holds the words of resource events: their kinds, keys, levels and sources, what an op computes
// and moves, and LRI's formulas.
//
// Every event is one line of JSON. The structs here are its schema: they read a line back (see [Decode]),
// docs/events.schema.json is made of them, and what the recorder in resource/oplog writes is tested against them. A
// key whose value is not known is absent, never zero; such fields are pointers.
package resource

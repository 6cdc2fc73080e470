package ggmlhooks

import "io"

// A recorder has Close, and those of these interfaces whose reports it needs. Reports come in the order in which
// things happened, from one goroutine.
type (
	// Decided records executions once it is known whether they were set-up and a device has computed them: in
	// order per context.
	Decided interface{ Record(*Execution) error }
	// Tensors takes executions with the tensors that were captured of them, in order per context: at once where they
	// are the run, else when that is decided, or earlier where the slots of the tensors are needed. The first such
	// recorder of an Assembler gets them, and releases each tensor.
	Tensors interface {
		io.Closer
		// Start begins an execution that is to be written. Undecided ones may still turn out to be set-up.
		Start(*Execution) error
		// Tensor takes a tensor of an execution. One that was not started is set-up: its tensors are only counted.
		Tensor(*Execution, *Capture) error
		// Settle ends an execution: its Phase is decided, and it has ended or lost its end. A device may still
		// compute it.
		Settle(*Execution) error
		// Commit follows executions that were settled together. Every token before a number belongs to one that was.
		Commit(before int64) error
		// Refuse ends writing; what follows is only counted. The executions were started and not settled.
		Refuse(started []*Execution) error
	}
	// Live follows executions as they happen.
	Live interface {
		Begin(*Execution) error
		End(*Execution) error
		Resolve(Resolve) error // of the executions of a context up to a number
	}
	// Contexts takes contexts, before their graphs.
	Contexts interface{ Context(*Context) error }
	// Graphs takes each graph before its first execution.
	Graphs interface{ Graph(*Graph) error }
	// Retractor learns that the executions first to last of a context, recorded as undecided, were set-up.
	Retractor interface {
		Retract(ctx uint32, first, last uint64) error
	}
	// Memory follows buffers.
	Memory interface {
		Buffer(*Buffer) error
		BufferEnd(BufferEnd) error
	}
	// Sampled takes the choices of samplers.
	Sampled interface{ Sample(*Sample) error }
	// Called takes the program's batches.
	Called interface{ Call(*Call) error }
	// Server takes what a server does for its requests.
	Server interface{ Served(*Served) error }
	// Mover takes what is moved to devices and back.
	Mover interface{ Moved(*Moved) error }
	// Sequenced takes what the program does to sequences.
	Sequenced interface{ SeqChange(*SeqChange) error }
)

// fanout is recorders by the reports that they need. It hands on the reports that need no assembly.
type fanout struct {
	decided   list[Decided]
	live      list[Live]
	contexts  list[Contexts]
	graphed   list[Graphs]
	retract   list[Retractor]
	memory    list[Memory]
	sampled   list[Sampled]
	sequenced list[Sequenced]
	called    list[Called]
	server    list[Server]
	movers    list[Mover]
}

func newFanout(recorders ...io.Closer) fanout {
	return fanout{
		decided: listOf[Decided](recorders), live: listOf[Live](recorders), contexts: listOf[Contexts](recorders),
		graphed: listOf[Graphs](recorders), retract: listOf[Retractor](recorders), memory: listOf[Memory](recorders),
		sampled: listOf[Sampled](recorders), sequenced: listOf[Sequenced](recorders),
		called: listOf[Called](recorders), server: listOf[Server](recorders),
		movers: listOf[Mover](recorders),
	}
}

// Buffer notes that memory came.
func (f *fanout) Buffer(b *Buffer) error {
	return f.memory.each(func(r Memory) error { return r.Buffer(b) })
}

// BufferEnd notes that memory went.
func (f *fanout) BufferEnd(e BufferEnd) error {
	return f.memory.each(func(r Memory) error { return r.BufferEnd(e) })
}

// Sample notes a sampler's choice.
func (f *fanout) Sample(c *Sample) error {
	return f.sampled.each(func(r Sampled) error { return r.Sample(c) })
}

// Served notes what a server did.
func (f *fanout) Served(s *Served) error {
	return f.server.each(func(r Server) error { return r.Served(s) })
}

// Moved notes what was moved.
func (f *fanout) Moved(m *Moved) error {
	return f.movers.each(func(r Mover) error { return r.Moved(m) })
}

// list is the recorders that want one kind of report.
type list[T any] []T

func listOf[T any](recorders []io.Closer) (l list[T]) {
	for _, r := range recorders {
		if t, ok := r.(T); ok {
			l = append(l, t)
		}
	}
	return l
}

// each calls f for all of them and returns the first error.
func (l list[T]) each(f func(T) error) (first error) {
	for _, r := range l {
		if err := f(r); err != nil && first == nil {
			first = err
		}
	}
	return first
}

package stream

import "errors"

// Writer writes a stream and its index.
type Writer struct{}

// Create makes the stream at path and its index beside it; both must not exist.
func Create(path string, o Options) (*Writer, error) { return nil, errors.ErrUnsupported }

// New returns a writer to files that the caller opened. Close closes them.
func New(stream, index File, o Options) (*Writer, error) { return nil, errors.ErrUnsupported }

// Append queues a packet. p is copied; data is borrowed until release is called, which happens exactly once, from any
// goroutine, also when Append returns an error. Packets are written in the order of the calls. Append waits while the queue
// is full. After the first error every call returns it.
func (w *Writer) Append(p *Packet, data []byte, release func()) error { return errors.ErrUnsupported }

// AppendExecution records an execution and its token rows, in order with the packets. e is copied.
func (w *Writer) AppendExecution(e *Execution) error { return errors.ErrUnsupported }

// AppendLoss records that packets are missing.
func (w *Writer) AppendLoss(l Loss) error { return errors.ErrUnsupported }

// AppendResolution records what earlier executions were for.
func (w *Writer) AppendResolution(r Resolution) error { return errors.ErrUnsupported }

// Commit queues a marker: once it is in the index file, everything appended before it is in both files. It does not wait.
func (w *Writer) Commit() error { return errors.ErrUnsupported }

// Flush waits until everything appended so far is in both files.
func (w *Writer) Flush() error { return errors.ErrUnsupported }

// Stats returns what was written so far.
func (w *Writer) Stats() Stats { return Stats{} }

// Close writes what is queued, ends the index and closes both files. It returns the first error of the writer's life, also
// when called again.
func (w *Writer) Close() error { return errors.ErrUnsupported }

// Sums returns size and hash of the stream and the index, after Close.
func (w *Writer) Sums() (stream, index Sum) { return }

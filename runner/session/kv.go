//go:build linux

package session

import (
	"errors"
	"fmt"
	"io"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/kvcache/track"
)

// kv is the tracker of cells with the file that it writes.
type kv struct {
	*track.Recorder
	file io.WriteCloser // nil: there is none
}

// Close ends the lives that continue, and the file.
func (k *kv) Close() error {
	err := k.Recorder.Close()
	if k.file != nil {
		err = errors.Join(err, k.file.Close())
	}
	return err
}

// summaryText reports how the caches were used.
func (k *kv) summaryText() string {
	snapshot := k.Snapshot()
	used, cells := 0, 0
	for _, c := range snapshot.Latest() {
		used, cells = used+c.Used, cells+c.Cells
	}
	text := fmt.Sprintf("cache     %d of %d cells in use at the end of the recording", used, cells)
	if ratio, ok := snapshot.Reuse.Ratio(); ok && snapshot.Reuse.Requests > 1 {
		text += fmt.Sprintf(", %.0f %% of what %d prompts needed was there", 100*ratio, snapshot.Reuse.Requests)
	}
	return text
}

// newKV makes the tracker. Its file appears when it is closed. events, which may be nil, gets the operations on cells.
func newKV(r *run, events *events) (*kv, error) {
	o := track.Options{Block: r.o.Tap.KVBlock, UnixOffset: r.unixOffset()}
	if events != nil {
		o.Operation = events.KV
	}
	k := &kv{}
	var err error
	if r.o.Tap.Records(config.KV) {
		if k.file, err = r.dir.Create(track.FileName); err != nil {
			return nil, err
		}
		o.Out = k.file
	}
	if k.Recorder, err = track.NewRecorder(o); err != nil {
		if k.file != nil {
			err = errors.Join(err, k.file.Close())
		}
		return nil, err
	}
	return k, nil
}

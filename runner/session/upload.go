//go:build linux

package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/object"
	"github.com/llamatap/llamatap/store/rundir"
)

// uploader copies to object storage what is finished of a run, while the run is recorded: sealed segments, and parts of
// tables and events. Its goroutine is one of this process, at nice 19. Its methods are for the goroutine that records.
// nil: the run is not copied.
type uploader struct {
	to    *object.Store      // the folder of the run's model, once it has begun
	dir   *rundir.Dir        // nil until begin
	quit  chan struct{}      // closed: it copies no further file
	stop  context.CancelFunc // cuts off a request that is running
	done  chan struct{}
	moved rundir.Moved // what of the run is in the store alone
}

// How long a store may not answer before a recording, and how long at its end.
const (
	askPatience  = 5 * time.Second
	sealPatience = time.Minute
	uploadEvery  = 500 * time.Millisecond
)

// newUploader opens the object storage that --tap-out names, and asks whether its bucket is there. nil: it names none.
func newUploader(ctx context.Context, tap *config.Tap) (*uploader, error) {
	if tap.Store == "" {
		return nil, nil
	}
	to, err := object.Open(tap.Store)
	if err == nil {
		to.Patience = askPatience
		err = to.Check(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("--tap-out: %w", err)
	}
	return &uploader{to: to, quit: make(chan struct{}), done: make(chan struct{})}, nil
}

// copies reports whether the run is copied.
func (u *uploader) copies() bool { return u != nil && u.dir != nil }

// has reports whether the store has a file, and for the manifest of a segment the whole segment, as it was read back.
func (u *uploader) has(f rundir.File) bool { return u.to.Has(f) }

// note takes account of a file that the store alone will have; bytes is what it takes here, or its segment.
func (u *uploader) note(f rundir.File, bytes int64) {
	u.moved.Last = time.Now().UTC()
	if u.moved.To == "" {
		u.moved.To, u.moved.First = u.to.String(), u.moved.Last
	}
	u.moved.Files, u.moved.Bytes = append(u.moved.Files, f), u.moved.Bytes+bytes
}

// movedOf is what metadata.json says of what was moved; nil: nothing was.
func (u *uploader) movedOf() *rundir.Moved {
	if u == nil || len(u.moved.Files) == 0 {
		return nil
	}
	moved := u.moved
	moved.Files = slices.Clone(moved.Files)
	return &moved
}

// begin starts to copy a run.
func (u *uploader) begin(dir *rundir.Dir) {
	if u == nil {
		return
	}
	u.to = u.to.Below(filepath.Base(filepath.Dir(dir.Path()))).Below(dir.ID())
	u.to.Patience = 0
	u.to.Remark = func(line string) { fmt.Fprintln(present.Err, "llamatap:", line) }
	u.to.Quit, u.dir = u.quit, dir
	ctx, stop := context.WithCancel(context.Background())
	u.stop = stop
	go func() {
		defer close(u.done)
		for {
			files := slices.DeleteFunc(rundir.Recorded(dir), func(f rundir.File) bool {
				return f.Name == rundir.MetadataName // it is replaced when the run is sealed
			})
			err := u.to.PushFiles(ctx, dir.Path(), files)
			wait := time.After(uploadEvery)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, object.ErrQuit) {
				u.to.Remark(fmt.Sprintf("copy to %s: %v; the run is copied when it ends", u.to, err))
				wait = nil
			}
			select {
			case <-u.quit:
				return
			case <-wait:
			}
		}
	}()
}

// end copies what is left of a run that was sealed, its manifest last, and returns the URL of the copy; "": there is
// none.
func (u *uploader) end(sealed bool) (string, error) {
	if !u.copies() {
		return "", nil
	}
	close(u.quit)
	cutOff := time.AfterFunc(sealPatience, u.stop) // the store may hold a request
	<-u.done
	cutOff.Stop()
	if !sealed {
		return "", nil
	}
	u.to.Patience, u.to.Quit = sealPatience, nil
	if err := u.to.Push(context.Background(), u.dir.Path()); err != nil {
		return "", fmt.Errorf("%w; nothing is lost: copy it later with llamatap push %s %s", err, u.dir.Path(),
			u.to.Parent())
	}
	return u.to.String(), nil
}

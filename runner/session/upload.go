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
// tables and events. Its goroutine is one of this process, at nice 19.
type uploader struct {
	to   *object.Store // the folder of the run's model, once it has begun; nil: no object storage
	dir  *rundir.Dir   // nil until begin
	stop context.CancelFunc
	done chan struct{}
}

// How long a store may not answer before a recording, and how long at its end.
const (
	askPatience  = 5 * time.Second
	sealPatience = time.Minute
	uploadEvery  = 500 * time.Millisecond
)

// newUploader opens the object storage that --tap-out names, and asks whether its bucket is there.
func newUploader(ctx context.Context, tap *config.Tap) (*uploader, error) {
	u := &uploader{stop: func() {}}
	if tap.Store == "" {
		return u, nil
	}
	if tap.MaxDisk.Action == config.DiskRotate {
		return nil, errors.New("--tap-out s3:// with --tap-max-disk SIZE:rotate: what is given back would be missing " +
			"in the copy: use SIZE:stop")
	}
	to, err := object.Open(tap.Store)
	if err == nil {
		to.Patience = askPatience
		err = to.Check(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("--tap-out: %w", err)
	}
	u.to = to
	return u, nil
}

// begin starts to copy a run.
func (u *uploader) begin(dir *rundir.Dir) {
	if u == nil || u.to == nil {
		return
	}
	u.to = u.to.Below(filepath.Base(filepath.Dir(dir.Path()))).Below(dir.ID())
	u.to.Patience = 0
	u.to.Remark = func(line string) { fmt.Fprintln(present.Err, "llamatap:", line) }
	u.dir, u.done = dir, make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	u.stop = stop
	go func() {
		defer close(u.done)
		for ctx.Err() == nil {
			files := slices.DeleteFunc(rundir.Recorded(dir), func(f rundir.File) bool {
				return f.Name == rundir.MetadataName // it is replaced when the run is sealed
			})
			err := u.to.PushFiles(ctx, dir.Path(), files)
			if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
				u.to.Remark(fmt.Sprintf("copy to %s: %v; the run is copied when it ends", u.to, err))
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(uploadEvery):
			}
		}
	}()
}

// end copies what is left of a run that was sealed, its manifest last, and returns the URL of the copy; "": there is
// none.
func (u *uploader) end(sealed bool) (string, error) {
	u.stop()
	if u.dir == nil {
		return "", nil
	}
	<-u.done
	if !sealed {
		return "", nil
	}
	u.to.Patience = sealPatience
	if err := u.to.Push(context.Background(), u.dir.Path()); err != nil {
		return "", fmt.Errorf("%w; nothing is lost: copy it later with llamatap push %s %s", err, u.dir.Path(), u.to.Parent())
	}
	return u.to.String(), nil
}

package stream

// files are the stream and the index of a writer. They belong to whoever has set queue.writing.
type files struct {
	stream, index *output
	journal       *journal
	tee           func(index bool, p []byte) // Options.Tee
}

// outcome says what a batch held beside packets.
type outcome struct {
	flushes   uint64 // that were asked for
	flushed   Mark   // by the last of them that did it; zero: none
	committed bool   // there is a commit marker
}

// write puts a packed batch into both files.
func (f *files) write(b *batch, s *Stats) (o outcome, err error) {
	defer func() { f.teeOut(b.out) }()
	offset := f.stream.end()
	if err := f.stream.write(b.out); err != nil {
		return o, err
	}
	for i := range b.items {
		it := &b.items[i]
		switch it.kind {
		case recordPacket:
			p := &it.packet
			p.Offset = offset
			offset += packetHeader + int64(len(p.Name)) + p.Stored
			err = f.journal.packet(p)
			s.addPacket(p)
		case recordCommit:
			o.committed = true
			err = f.journal.commit()
		case 0:
			o.flushes++
			if err = f.journal.flush(); err == nil {
				o.flushed = f.journal.mark()
			}
		default:
			err = f.journal.control(it)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// teeOut hands on what was written: bytes of the stream, and the records since the last time.
func (f *files) teeOut(out []byte) {
	if f.tee == nil {
		return
	}
	if len(out) > 0 {
		f.tee(false, out)
	}
	if len(f.journal.tee) > 0 {
		f.tee(true, f.journal.tee)
		f.journal.tee = f.journal.tee[:0]
	}
}

// finish ends the index, and puts both files on the disk.
func (f *files) finish() error {
	if err := f.journal.end(); err != nil {
		return err
	}
	f.teeOut(nil)
	trim := func() error { f.stream.ahead.release(); return nil }
	for _, step := range []func() error{f.stream.flush, trim, f.index.flush, f.sync} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// sync syncs both files, the stream first, so that the index never describes bytes that are missing. It may be
// called beside writing.
func (f *files) sync() error {
	if err := f.stream.sync(); err != nil {
		return err
	}
	return f.index.sync()
}

// releaseReserve frees the disk space kept for the stream, so that the index can use it.
func (f *files) releaseReserve() bool {
	return f.stream.behind.settle() == nil && f.stream.ahead.release()
}

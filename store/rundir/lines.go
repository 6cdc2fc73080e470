package rundir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// EndLines ends a file of JSON lines after its last whole line, as its writer would have left it: a last line that
// lacks nothing but its line feed gets it, and half a line is cut off. It returns how many bytes that were. When it
// returns, the change is on the disk.
func EndLines(path string) (cut int64, err error) {
	whole, torn, complete, err := lastLine(path)
	if err != nil || torn == 0 {
		return 0, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if complete {
		_, err = file.WriteAt([]byte{'\n'}, whole+torn)
		torn = 0
	} else {
		err = file.Truncate(whole)
	}
	if err == nil {
		err = disk.sync(file)
	}
	if err != nil {
		return 0, fmt.Errorf("end %s after its last whole line: %w", filepath.Base(path), err)
	}
	return torn, nil
}

// lastLine returns how many bytes of a file are whole lines, how many follow them, and whether these only lack
// their line feed.
func lastLine(path string) (whole, torn int64, complete bool, err error) {
	file, err := OpenFile(path)
	if err != nil {
		return 0, 0, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, 0, false, err
	}
	block := make([]byte, 64<<10)
	for whole = info.Size(); whole > 0; {
		b := block[:min(whole, int64(len(block)))]
		if _, err := file.ReadAt(b, whole-int64(len(b))); err != nil {
			return 0, 0, false, err
		}
		end := bytes.LastIndexByte(b, '\n') + 1
		if whole -= int64(len(b) - end); end > 0 {
			break
		}
	}
	if torn = info.Size() - whole; torn > MaxDocument {
		return whole, torn, false, nil
	}
	last := make([]byte, torn)
	_, err = io.ReadFull(io.NewSectionReader(file, whole, torn), last)
	return whole, torn, json.Valid(last), err
}

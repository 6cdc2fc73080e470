package resources

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

// drain reads lines until there are no more for now.
func drain(t *testing.T, tail *Tail) (lines []string, end error) {
	t.Helper()
	for {
		line, err := tail.Next()
		if err != nil {
			return lines, err
		}
		text := string(line.Text)
		if line.Err != nil {
			text = "BAD " + line.Err.Error()
		}
		lines = append(lines, fmt.Sprintf("%d %s", line.Number, text))
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestTailGrows follows a log through everything that a run does to it: half lines, rotation, renaming, sealing.
func TestTailGrows(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, ".resource.jsonl.part"), filepath.Join(dir, ".resource.1.jsonl.part")
	going := true
	tail := newTail(dir)
	tail.Going = func() bool { return going }
	defer tail.Close()
	expect := func(step string, end error, want ...string) {
		t.Helper()
		got, err := drain(t, tail)
		if strings.Join(got, "|") != strings.Join(want, "|") || !errors.Is(err, end) {
			t.Fatalf("%s: %q, %v; want %q, %v", step, got, err, want, end)
		}
	}
	expect("nothing is there", ErrWaiting)
	appendTo(t, first, "a\nb\nha")
	expect("half a line", ErrWaiting, "1 a", "2 b")
	if tail.Unfinished() != 2 || tail.Unread() != 2 {
		t.Errorf("unfinished %d, unread %d", tail.Unfinished(), tail.Unread())
	}
	appendTo(t, first, "lf\r\n")
	expect("its other half", ErrWaiting, "3 half")
	appendTo(t, first, "d\n")
	appendTo(t, second, "e\n")
	if tail.Unread() != 4 {
		t.Errorf("unread %d", tail.Unread())
	}
	rename(t, first, filepath.Join(dir, rundir.EventsName))
	expect("rotation", ErrWaiting, "4 d", "5 e")
	rename(t, second, filepath.Join(dir, "resource.1.jsonl"))
	appendTo(t, filepath.Join(dir, "resource.1.jsonl"), "f\n") // before it got its name
	appendTo(t, filepath.Join(dir, ".resource.2.jsonl.part"), "g\nh")
	expect("the end of a part", ErrWaiting, "6 f", "7 g")
	going = false
	expect("nobody writes any more", io.EOF)
	if tail.Unfinished() != 1 || tail.Lines() != 7 {
		t.Errorf("unfinished %d of line %d", tail.Unfinished(), tail.Lines()+1)
	}
}

// TestTailLastLook sees what is written between the last read and the end.
func TestTailLastLook(t *testing.T) {
	dir := directory(t, map[string]string{rundir.EventsName: "a\n"})
	tail := newTail(dir)
	tail.Going = func() bool { appendTo(t, filepath.Join(dir, rundir.EventsName), "b\n"); return false }
	defer tail.Close()
	lines := 0
	for range 3 {
		if _, err := tail.Next(); err != nil {
			t.Fatal(err)
		}
		lines++
	}
}

// TestTailParts reads a log of many parts and of segments in the order in which they were written, and passes by
// what is none of it.
func TestTailParts(t *testing.T) {
	files := map[string]string{"resource.1.jsonl.part": "x\n", ".resource.7.jsonl": "x\n", "resource.01.jsonl": "x\n",
		"xresource.jsonl": "x\n"}
	want := []string{}
	name := rundir.EventsName
	for i := range 12 {
		files[name] = fmt.Sprintf("%d\n", i)
		want = append(want, fmt.Sprintf("%d %d", i+1, i))
		name = fmt.Sprintf("resource.%d.jsonl", i+1)
	}
	files["seg-00002/resource.jsonl"], files["seg-00001/.resource.jsonl.part"] = "s2\n", "s1\n"
	want = append(want, "13 s1", "14 s2")
	dir := directory(t, files)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "resource.99.jsonl")); err != nil {
		t.Fatal(err)
	}
	tail, err := OpenTail(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	if got, err := drain(t, tail); strings.Join(got, "|") != strings.Join(want, "|") || tail.Unfinished() != 0 {
		t.Errorf("%q, %v", got, err)
	}
}

// TestTailMissed counts the files that a rotation gave back before they were read, at the begin and under way.
func TestTailMissed(t *testing.T) {
	dir := directory(t, map[string]string{"resource.2.jsonl": "two\n", "resource.3.jsonl": "three\n",
		"resource.4.jsonl": "four\n", "resource.5.jsonl": "five\n"})
	tail, err := OpenTail(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	if line, err := tail.Next(); err != nil || string(line.Text) != "two" || tail.Missed() != 2 {
		t.Errorf("%q, %v, %d files missed", line.Text, err, tail.Missed())
	}
	for _, number := range []string{"2", "3", "4"} {
		if err := os.Remove(filepath.Join(dir, "resource."+number+".jsonl")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := drain(t, tail); strings.Join(got, "|") != "2 five" || tail.Missed() != 4 {
		t.Errorf("%q, %v, %d files missed", got, err, tail.Missed())
	}
}

// TestTailTooLong passes over a line beyond the bound, in bounded memory, and over one that a rotation cut off.
func TestTailTooLong(t *testing.T) {
	dir := directory(t, map[string]string{
		rundir.EventsName:  "a\n" + strings.Repeat("x", maxLine+1) + "\n" + strings.Repeat("y", 3*maxLine) + "\nb\ncut",
		"resource.1.jsonl": "c\n", "manifest.json": manifest,
	})
	tail, err := OpenTail(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	got, err := drain(t, tail)
	want := "1 a|2 BAD longer than 1048576 bytes|3 BAD longer than 1048576 bytes|4 b|5 BAD cut off after 3 bytes, " +
		"before the next file of the log|6 c"
	if strings.Join(got, "|") != want || err != io.EOF {
		t.Errorf("%.300q, %v", got, err)
	}
	if cap(tail.buf) > 4*maxLine {
		t.Errorf("the buffer grew to %d bytes", cap(tail.buf))
	}
}

// TestTailEndless gives up in a file whose line has no end, in bounded time, and reads the next file.
func TestTailEndless(t *testing.T) {
	dir := directory(t, map[string]string{rundir.EventsName: "a\n", "resource.1.jsonl": "b\n",
		"manifest.json": manifest})
	if err := os.Truncate(filepath.Join(dir, rundir.EventsName), 1<<40); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	tail, err := OpenTail(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	got, err := drain(t, tail)
	want := "1 a|2 BAD longer than 268435456 bytes: the file is not read further|3 b"
	if strings.Join(got, "|") != want || err != io.EOF || tail.Unfinished() != 0 {
		t.Errorf("%.300q, %v", got, err)
	}
}

func TestOpenTailErrors(t *testing.T) {
	dir := directory(t, map[string]string{"model/run_20261121_000000_aaaa/resource.jsonl": "",
		"model/run_20261121_000001_aaaa/resource.jsonl": "", "x": "{}"})
	for path, want := range map[string]string{
		dir:                        "such as the newest, " + filepath.Join(dir, "model/run_20261121_000001_aaaa"),
		filepath.Join(dir, "none"): "no such file or folder",
		t.TempDir():                "record a run with --tap-resource-level",
	} {
		if _, err := OpenTail(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	tail, err := OpenTail(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	if _, err := tail.Next(); err != io.EOF || tail.Unfinished() != 2 {
		t.Errorf("a file: %v", err)
	}
}

// FuzzTail reads whatever bytes in two files: every line comes once, in order, whatever the pieces in which they came.
func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nb"), []byte("c\n"), uint16(1))
	f.Add([]byte(""), []byte("\n\n\r\n"), uint16(0))
	f.Fuzz(func(t *testing.T, one, two []byte, at uint16) {
		dir := t.TempDir()
		cut := min(int(at), len(one))
		going := true
		tail := newTail(dir)
		tail.Going = func() bool { return going }
		defer tail.Close()
		appendTo(t, filepath.Join(dir, rundir.EventsName), string(one[:cut]))
		got, _ := drain(t, tail)
		appendTo(t, filepath.Join(dir, rundir.EventsName), string(one[cut:]))
		appendTo(t, filepath.Join(dir, "resource.1.jsonl"), string(two))
		going = false
		more, err := drain(t, tail)
		if err != io.EOF {
			t.Fatal(err)
		}
		var want []string
		number := 0
		for i, text := range []string{string(one), string(two)} {
			for line := range strings.SplitAfterSeq(text, "\n") {
				whole, ok := strings.CutSuffix(line, "\n")
				if ok {
					number++
					want = append(want, fmt.Sprintf("%d %s", number, strings.TrimSuffix(whole, "\r")))
				} else if line != "" && i == 0 {
					number++
					want = append(want, fmt.Sprintf("%d BAD cut off after %d bytes, before the next file of the log",
						number, len(line)))
				}
			}
		}
		if strings.Join(append(got, more...), "|") != strings.Join(want, "|") {
			t.Errorf("%q then %q, want %q", got, more, want)
		}
	})
}

package stream

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/codec"
)

const killDir = "LLAMATAP_TEST_KILL_DIR"

// killData is what the killed writer stores as packet i.
func killData(i uint64) []byte {
	r := rand.New(rand.NewPCG(i, 1))
	b := make([]byte, 4*(1+r.IntN(3000)))
	for j := range b {
		b[j] = byte(r.Uint32())
	}
	return b
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		fmt.Fprintln(os.Stderr, writeForEver(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver is what TestKill kills.
func writeForEver(dir string) error {
	w, err := Create(filepath.Join(dir, "a.stream"), Options{Workers: 2, Codec: codec.LZ4, Ahead: 64 << 20})
	if err != nil {
		return err
	}
	for i := uint64(0); ; i++ {
		if err := w.Append(&Packet{Name: fmt.Sprint(i % 40), SrcType: ggmlI32, Exec: i}, killData(i), nil); err != nil {
			return err
		}
		if i%40 == 39 {
			if err := w.Flush(); err != nil {
				return err
			}
			fmt.Println(i) // what was flushed must survive, so inform the parent
		}
	}
}

// kill -9 at any moment: everything that was flushed is there, and the index never describes what is not.
func TestKill(t *testing.T) {
	for round := range 4 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		printed, err := os.Create(filepath.Join(dir, "printed"))
		if err != nil {
			t.Fatal(err)
		}
		defer printed.Close()
		cmd.Stdout = printed
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// until something was flushed
		for info, _ := printed.Stat(); info == nil || info.Size() == 0; info, _ = printed.Stat() {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		flushed := -1
		out, err := os.ReadFile(printed.Name())
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Fields(out); len(lines) > 1 {
			fmt.Sscan(string(lines[len(lines)-2]), &flushed) // the last line may be torn
		}
		checkKilled(t, fmt.Sprintf("round %d", round), filepath.Join(dir, "a.stream"), flushed)
	}
}

func checkKilled(t *testing.T, what, path string, flushed int) {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer r.Close()
	if len(r.Info().Damage) == 0 || r.Len() <= flushed {
		t.Errorf("%s: %d packets, %d were flushed; damage %v", what, r.Len(), flushed+1, r.Info().Damage)
	}
	for i, p := range r.Packets() {
		got, err := r.ReadInto(p, nil)
		if err != nil || p.Exec != uint64(i) || !bytes.Equal(got, killData(p.Exec)) {
			t.Fatalf("%s: packet %d of %d: %v", what, i, r.Len(), err)
		}
	}
}

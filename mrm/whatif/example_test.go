package whatif_test

import (
	"fmt"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/mrm/whatif"
)

// A cache of 1 MiB that is read for 30 s, in a memory that retains what is written for 10 s.
func ExampleJudge() {
	lives := &memtrace.Survival{}
	lives.Add(30e9, 1<<20, false)
	cache := whatif.Subject{Type: memtrace.KVCache, Bytes: 1 << 20, Seconds: 60, BytesRead: 1 << 30, BytesWritten: 1 << 20, Lives: lives}
	class := whatif.Class{
		ID: "managed", Refresh: whatif.Needed, RetentionS: &whatif.Figure{Value: 10}, Endurance: &whatif.Figure{Value: 1e9},
		ReadPJ: &whatif.Figure{Value: 1}, WritePJ: &whatif.Figure{Value: 5},
	}
	row := whatif.Judge([]whatif.Subject{cache}, &class, whatif.Options{})
	fmt.Printf("refreshed %.0f times a day, cells last %.0f years, %.1f J a day: %s\n", row.Refreshes.Low, row.Lifetime.Low, row.Energy.Total.Low, row.Verdict)
	// Output: refreshed 2880 times a day, cells last 634 years, 12.6 J a day: with_refresh
}

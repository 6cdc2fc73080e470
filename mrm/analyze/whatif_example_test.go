package analyze

import (
	"fmt"

	"github.com/llamatap/llamatap/memtrace"
)

// A cache of 1 MiB that is read for 30 s, in a memory that retains what is written for 10 s.
func Example_judgeRow() {
	lives := &memtrace.Survival{}
	lives.Add(30e9, 1<<20, false)
	cache := subject{
		Type: memtrace.KVCache, Bytes: 1 << 20, Seconds: 60, BytesRead: 1 << 30, BytesWritten: 1 << 20, Lives: lives,
	}
	class := Class{
		ID: "managed", Refresh: Needed, RetentionS: &Figure{Value: 10}, Endurance: &Figure{Value: 1e9},
		ReadPJ: &Figure{Value: 1}, WritePJ: &Figure{Value: 5},
	}
	row := judgeRow([]subject{cache}, &class, demandOptions{})
	fmt.Printf("refreshed %.0f times a day, cells last %.0f years, %.1f J a day: %s\n",
		row.Refreshes.Low, row.Lifetime.Low, row.Energy.Total.Low, row.Verdict)
	// Output: refreshed 2880 times a day, cells last 634 years, 12.6 J a day: with_refresh
}

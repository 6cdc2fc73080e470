package present

import (
	"testing"
	"time"
)

func TestFigures(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 B"}, {Bytes(1023), "1023 B"}, {Bytes(1024), "1.00 KiB"}, {Bytes(10235), "10.0 KiB"},
		{Bytes(uint64(4269696)), "4.07 MiB"},
		{Bytes(100 << 20), "100 MiB"}, {Bytes(1<<20 - 1), "1.00 MiB"}, {Bytes(int64(1) << 60), "1.00 EiB"},
		{Bytes(511.7), "512 B"},
		{Rate(0), "0.00 B/s"}, {Rate(999.6), "1.00 kB/s"}, {Rate(31.42e9), "31.4 GB/s"},
		{Count(999), "999"}, {Count(999_600), "1.00 M"}, {Count(23.3e9), "23.3 G"},
		{Duration(0), "0 s"}, {Duration(999), "999 ns"}, {Duration(12345), "12.3 µs"}, {Duration(999_900), "1.00 ms"},
		{Duration(2468 * time.Millisecond), "2.47 s"},
		{Duration(90 * time.Second), "90.0 s"}, {Duration(2 * time.Minute), "2m0s"}, {Seconds(0.0015), "1.50 ms"},
		{Seconds(3600), "1h0m0s"},
		{Seconds(1e300), "2555555h33m20s"}, {Percent(0.1234), "12.3 %"}, {Percent(1), "100.0 %"},
		{Plural(0, "token"), "0 tokens"}, {Plural(uint64(1), "layer"), "1 layer"}, {Plural(int64(2), "run"), "2 runs"},
		{Maybe(nil, Percent), "-"},
		{Maybe(new(0.5), Percent), "50.0 %"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

package blockio

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/resource"
)

// golden compares what a program wrote with what it should.
func golden(t *testing.T, main, want string) {
	t.Helper()
	got := strings.TrimSpace(compileC(t, main))
	want = strings.TrimSpace(want)
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || strings.TrimSpace(g[i]) != strings.TrimSpace(w[i]) {
			t.Fatalf("from line %d on got\n%s\nwant\n%s", i+1, strings.Join(g[min(i, len(g)):], "\n"),
				strings.Join(w[min(i, len(w)):], "\n"))
		}
	}
}

// TestOperations: operations are sorted as the kernel's statistics sort them, by number (include/linux/blk_types.h)
// and by text (rwbs).
func TestOperations(t *testing.T) {
	golden(t, `
int main(void)
{
	const char *texts[] = { "R", "RA", "RAM", "W", "WS", "WSM", "WFS", "FW", "FWFS", "FF", "D", "DE", "DS", "N", "FR",
		"F" };

	for (unsigned op = 0; op < 40; op++)
		printf("%u", block_op_of(op | 0x4000800));
	printf("\n");
	for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++)
		printf("%s %u\n", texts[i], block_op_of_text(texts[i][0], texts[i][1]));
}`, `
0132414141444444444444444444444444444444
R 0
RA 0
RAM 0
W 1
WS 1
WSM 1
WFS 1
FW 1
FWFS 1
FF 3
D 2
DE 2
DS 2
N 4
FR 0
F 3`)
	if resource.BlockOps[1] != resource.BlockWrite || len(resource.BlockOps) != opCount {
		t.Error("the words have other operations")
	}
}

// TestSizes: the classes are those of the words.
func TestSizes(t *testing.T) {
	var c, want strings.Builder
	c.WriteString("int main(void)\n{\n")
	for i, limit := range resource.BlockSizeLimits {
		fmt.Fprintf(&c, "\tprintf(\"%%u %%u\\n\", block_size_of(%d), block_size_of(%d));\n", limit, limit+1)
		fmt.Fprintln(&want, i, i+1)
	}
	c.WriteString(
		"\tprintf(\"%llu %llu %llu %llu\\n\", block_us(0), block_us(1999), block_us(2000), block_us(1234567));\n")
	want.WriteString("1 1 2 1234\n")
	c.WriteString(
		"\t__u64 wrong = 0;\n\tfor (__u64 ns = 2000; ns < 1ull << 33; ns += 999 * (1 + (ns & 1)) + (ns >> 20))\n")
	c.WriteString("\t\tfor (__u64 at = ns - ns % 1000 - 1; at < ns - ns % 1000 + 2; at++)\n" +
		"\t\t\twrong += at >= 2000 && block_us(at) != at / 1000;\n")
	c.WriteString("\tprintf(\"%llu %d\\n\", wrong, block_us((1ull << 32) - 1) == ((1ull << 32) - 1) / 1000);\n}\n")
	want.WriteString("0 1\n")
	golden(t, c.String(), want.String())
	if len(resource.BlockSizeLimits)+1 != sizeCount {
		t.Error("the words have other sizes")
	}
}

// TestTable: what is put into the table is found until it is removed, and what finds no room is counted.
func TestTable(t *testing.T) {
	golden(t, `
static struct block_table t;

int main(void)
{
	enum { MANY = 6000, MASK = BLOCK_BUCKETS - 1 };
	static int at[MANY];
	static bool taken[BLOCK_SLOTS];
	int wrong = 0, n = 0;

	for (__u64 i = 0; i < MANY; i++) { /* as far apart as requests of a queue are */
		at[i] = block_insert(&t, 0xffff888100000000ull + i * 320, MASK);
		if (at[i] >= 0)
			wrong += taken[at[i]], taken[at[i]] = true;
	}
	for (__u64 i = 0; i < MANY; i++)
		wrong += block_find(&t, 0xffff888100000000ull + i * 320, MASK) != at[i];
	wrong += block_find(&t, 0xffff888200000000ull, MASK) != -1;
	printf("wrong %d lost %llu\n", wrong, t.lost[BLOCK_LOST_SLOT]);
	for (__u64 i = 0; i < MANY; i++)
		if (at[i] >= 0)
			wrong += !block_remove(&t, at[i], 0xffff888100000000ull + i * 320, MASK);
	for (int i = 0; i < BLOCK_SLOTS; i++)
		wrong += t.slots[i].key != 0 || t.slots[i].spilled != 0;
	printf("wrong %d again %d\n", wrong, block_remove(&t, at[0], 0xffff888100000000ull, MASK));
	for (__u64 i = 1; i <= 10; i++) /* one bucket */
		n += block_insert(&t, i, 0) >= 0;
	printf("found room %d lost %llu\n", n, t.lost[BLOCK_LOST_SLOT]);
	memset(&t, 0, sizeof t);
	for (int i = 0; i < 2 * BLOCK_WAYS; i++)
		t.slots[i].issue_ns = 7; /* of what was there before */
	n = wrong = 0;
	for (__u64 key = 100; n < 4; key++) /* of one bucket: the last go into another one */
		if (block_bucket(key, 0, 1) == 0) {
			at[n] = key;
			n += block_insert(&t, key, 1) >= 0;
		}
	for (int i = 0; i < n; i++) {
		int slot = block_find(&t, at[i], 1);

		wrong += slot < 0 || t.slots[slot].issue_ns != 0 || (slot >= BLOCK_WAYS) != (i >= BLOCK_WAYS);
	}
	printf("found room %d wrong %d spilled %u %u\n", n, wrong, t.slots[0].spilled, t.slots[2].spilled);
	for (int i = 0; i < n; i++)
		block_remove(&t, block_find(&t, at[i], 1), at[i], 1);
	printf("spilled %u\n", t.slots[0].spilled);
	printf("keys %d\n", block_key_of(8 << 20, 2048, 0) != block_key_of(8 << 20 | 1, 2048, 0) &&
		block_key_of(8 << 20, 2048, 0) != block_key_of(8 << 20, 2048, 1) && block_key_of(0, 0, 0) != 0);
}`, `
wrong 0 lost 0
wrong 0 again 0
found room 2 lost 8
found room 4 wrong 0 spilled 2 0
spilled 0
keys 1`)
}

// TestRows: requests of one kind have one row; where there is no room, that of their disk.
func TestRows(t *testing.T) {
	golden(t, `
static struct block_table t;

int main(void)
{
	struct block_row a = { .op = BLOCK_WRITE, .device = 8 << 20 | 1, .tgid = 100, .cgroup = 5, .comm = { 1, 2 } }, b;
	__u32 first = block_row_of(&t, &a, 8 << 20, 63), row;
	int same = 0, fixed = 0;

	same += block_row_of(&t, &a, 8 << 20, 63) == first;
	b = a; b.comm[1] = 3; same += block_row_of(&t, &b, 8 << 20, 63) == first;
	b = a; b.tgid++; same += block_row_of(&t, &b, 8 << 20, 63) == first;
	b = a; b.cgroup++; same += block_row_of(&t, &b, 8 << 20, 63) == first;
	b = a; b.op = BLOCK_READ; same += block_row_of(&t, &b, 8 << 20, 63) == first;
	b = a; b.device++; same += block_row_of(&t, &b, 8 << 20, 63) == first;
	printf("same %d disk %x state %u\n", same, t.disks[t.rows[first].disk].id, t.rows[first].state);
	t.rows[first].state = BLOCK_RETIRED; /* not found any more */
	printf("retired %d\n", block_row_of(&t, &a, 8 << 20, 63) != first);
	for (b = a; b.tgid < 400; b.tgid++) {
		row = block_row_of(&t, &b, 8 << 20, 63);
		if (row < BLOCK_FIXED) {
			fixed++;
			printf(fixed > 1 ? "" : "row of all: op %u device %x tgid %u disk %d\n", t.rows[row].op,
				t.rows[row].device, t.rows[row].tgid, t.rows[row].disk == t.rows[first].disk);
		}
	}
	printf("lost %d\n", t.lost[BLOCK_LOST_ROW] == (__u64)fixed && fixed >= 236);
	for (__u32 i = 0; i < 40; i++)
		row = block_disk_of(&t, 100 + i);
	printf("disk %u lost %llu\n", row, t.lost[BLOCK_LOST_DISK]);
	row = block_row_of(&t, &(struct block_row){ .op = BLOCK_OTHER, .device = 139, .tgid = 1 }, 139, 0);
	printf("other: disk %u device %u\n", t.rows[row].disk, t.rows[row].device);
}`, `
same 1 disk 800000 state 2
retired 1
row of all: op 1 device 800000 tgid 0 disk 1
lost 1
disk 0 lost 10
other: disk 0 device 0`)
}

// TestCounts: depth, latency and what has none.
func TestCounts(t *testing.T) {
	const count = `
static struct block_table t;
static struct block_counts plain, shared;

static struct block_slot *of(__u64 key)
{
	return &t.slots[block_find(&t, key, 15) & (BLOCK_SLOTS - 1)];
}

static void end(__u64 issue, __u32 bytes, __u64 now, __u64 start, __u32 done, bool error)
{
	struct block_slot slot = { .issue_ns = issue, .bytes = bytes };
	struct block_end e = { .now = now, .start_ns = start, .bytes = done, .error = error };

	BLOCK_COUNT(&plain, &slot, &e, BLOCK_PLAINLY);
	BLOCK_COUNT(&shared, &slot, &e, BLOCK_ATOMICALLY);
}

int main(void)
{
	struct block_row row = { .op = BLOCK_READ, .device = 7 << 20, .tgid = 1 };
	__u32 at = block_row_of(&t, &row, 7 << 20, 63);
	struct block_disk *disk = &t.disks[t.rows[at].disk];

	for (int i = 1; i <= 3; i++) {
		int slot = block_insert(&t, i, 15);

		t.slots[slot].row = at;
		t.slots[slot].disk = t.rows[at].disk;
		block_issued(&t, slot, 1000 * i, 4096 * i);
	}
	block_issued(&t, block_find(&t, 3, 15), 9000, 512); /* once more: no deeper, no smaller */
	printf("depth %llu deepest %llu %llu, issued at %llu with %u\n", disk->inflight, disk->deepest[0], disk->deepest[1],
		of(3)->issue_ns, of(3)->bytes);
	t.epoch++;
	block_withdrawn(&t, of(1));
	of(1)->issue_ns = 0; /* taken back */
	block_withdrawn(&t, of(1));
	block_issued(&t, block_find(&t, 1, 15), 9500, 4096);
	printf("depth %llu deepest %llu %llu\n", disk->inflight, disk->deepest[0], disk->deepest[1]);

	end(1000000, 4096, 1000000 + 100000, 900000, 4096, false);  /* 100 us of service, 100 us in the queue */
	end(1000000, 65536, 1000000 + 1000, 0, 65536, true);        /* 1 us, start unknown, failed */
	end(1000000, 4096, 999999, 2000000, 4096, false);           /* a clock that went back */
	end(0, 0, 5000000, 2000000, 0, false);                      /* an empty flush */
	end(0, 0, 5000000, 2000000, 8192, false);                   /* its issue was not seen */
	printf("same %d\n", !memcmp(&plain, &shared, sizeof plain));
	printf("events %llu bytes %llu service %llu queue %llu of %llu errors %llu unissued %llu %llu untimed %llu\n",
		plain.events, plain.bytes, plain.service_ns, plain.queue_ns, plain.queued, plain.errors, plain.unissued,
		plain.unissued_ns, plain.untimed);
	for (int size = 0; size < BLOCK_SIZES; size++)
		for (int slot = 0; slot < HISTOGRAM_SLOTS; slot++)
			if (plain.latency[size][slot])
				printf("size %d slot %d: %u\n", size, slot, plain.latency[size][slot]);
	printf("queue slot 7: %u\n", plain.queue[7]);
}`
	golden(t, count, `
depth 3 deepest 3 0, issued at 9000 with 12288
depth 3 deepest 3 3
same 1
events 5 bytes 81920 service 101000 queue 100000 of 1 errors 1 unissued 1 3000000 untimed 1
size 1 slot 1: 1
size 1 slot 7: 1
size 3 slot 1: 1
queue slot 7: 1`)
}

package blockio

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// device is what the machine calls a block device.
type device struct {
	id     uint32
	name   string // as in /proc/diskstats; "?" where it is not known
	alias  string
	parent string // name of a partition's disk
}

// namesAge is how many snapshots long names are believed: a loop device may get another file.
const namesAge = 10

// names knows the machine's block devices by id. It reads them again when one is asked for that it does not know,
// and after some snapshots.
type names struct {
	root  fs.FS // of "/"
	byID  map[uint32]device
	age   int
	fresh bool // read since the last snapshot
}

func newNames(root fs.FS) *names { return &names{root: root, age: namesAge} }

// beginSnapshot begins a snapshot.
func (n *names) beginSnapshot() { n.age++; n.fresh = false }

// device returns a device by id, with the name "?" where there is none.
func (n *names) device(id uint32) device {
	d, ok := n.byID[id]
	if (!ok || n.age >= namesAge) && !n.fresh {
		n.refresh()
		d, ok = n.byID[id]
	}
	if !ok {
		return device{id: id, name: "?"}
	}
	return d
}

// refresh reads the names. What went away keeps its last one.
func (n *names) refresh() {
	n.age, n.fresh = 0, true
	text, err := fs.ReadFile(n.root, "proc/diskstats")
	if err != nil {
		return
	}
	if n.byID == nil {
		n.byID = map[uint32]device{}
	}
	for line := range strings.Lines(string(text)) {
		id, name, _, ok := splitDiskstats(line)
		if ok {
			n.byID[id] = n.describe(id, name)
		}
	}
}

// describe looks a device up in sysfs.
func (n *names) describe(id uint32, name string) device {
	d := device{id: id, name: name}
	dir := fmt.Sprintf("sys/dev/block/%d:%d", id>>20, id&(1<<20-1))
	for _, file := range []string{"dm/name", "loop/backing_file"} {
		text, err := fs.ReadFile(n.root, dir+"/"+file)
		if err == nil {
			d.alias = strings.TrimSpace(string(text))
			break
		}
	}
	if _, err := fs.Stat(n.root, dir+"/partition"); err == nil {
		if link, err := fs.ReadLink(n.root, dir); err == nil {
			d.parent = path.Base(path.Dir(link))
		}
	}
	return d
}

// splitDiskstats takes the first three words of a line of /proc/diskstats; rest are its numbers.
func splitDiskstats(line string) (id uint32, name string, rest []string, ok bool) {
	f := strings.Fields(line)
	if len(f) < 3 {
		return 0, "", nil, false
	}
	major, err1 := strconv.ParseUint(f[0], 10, 12)
	minor, err2 := strconv.ParseUint(f[1], 10, 20)
	if errors.Join(err1, err2) != nil {
		return 0, "", nil, false
	}
	return uint32(major<<20 | minor), f[2], f[3:], true
}

// find returns the ids that a user means by a device's name: a disk, a partition, a path below /dev, or the name
// that device-mapper gives it. What has no requests of its own, such as a logical volume, stands for the disks that
// it lies on.
func (n *names) find(name string) ([]uint32, error) {
	if n.byID == nil {
		n.refresh()
	}
	short := strings.TrimPrefix(strings.TrimPrefix(name, "/dev/"), "mapper/")
	for _, d := range n.byID {
		if d.name != short && d.alias != short {
			continue
		}
		below, err := fs.ReadDir(n.root, "sys/class/block/"+d.name+"/slaves")
		if err != nil || len(below) == 0 {
			return []uint32{d.id}, nil
		}
		ids := []uint32{d.id}
		for _, b := range below {
			of, err := n.find(b.Name())
			if err != nil {
				return nil, err
			}
			ids = append(ids, of...)
		}
		return ids, nil
	}
	return nil, fmt.Errorf("block device %q: there is none of that name; list them with: cat /proc/diskstats", name)
}

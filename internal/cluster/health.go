package cluster

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// Disk is the space of the file system that a member's data is in, in bytes.
type Disk struct {
	Free, Size int64
	Needed     int64 // writes are refused when less is free
}

// Disk returns the space of this member's file system.
func (m *Member) Disk() (d Disk, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(m.space.dir, &fs); err != nil {
		return d, fmt.Errorf("%w: file system of %s: %w", trivet.ErrUnavailable, m.space.dir, err)
	}
	d.Size = int64(fs.Blocks) * fs.Bsize
	d.Free, d.Needed, err = m.space.reserve.left()
	return d, err
}

// Alarms returns the alarms of the store that are raised, of this member or of all: such as "CORRUPT", for data that
// differs from that of the majority.
func (m *Member) Alarms() (all []string) {
	for _, a := range m.etcd.Server.Alarms() {
		if id := a.GetMemberID(); id == 0 || id == m.ID() {
			all = append(all, strings.ToUpper(a.GetAlarm().String()))
		}
	}
	return all
}

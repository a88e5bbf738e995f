package block

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// The structures are those of linux/nvme_ioctl.h and scsi/sg.h: each field has its offset there.
func TestLayoutOfKernelStructures(t *testing.T) {
	var n nvmeCommand
	var h sgHeader
	for name, c := range map[string]struct{ got, want uintptr }{
		"nvme_passthru_cmd": {unsafe.Sizeof(n), 72}, "nsid": {unsafe.Offsetof(n.NSID), 4},
		"metadata": {unsafe.Offsetof(n.Metadata), 16}, "addr": {unsafe.Offsetof(n.Data), 24},
		"metadata_len": {unsafe.Offsetof(n.MetadataBytes), 32}, "data_len": {unsafe.Offsetof(n.DataBytes), 36},
		"cdw10": {unsafe.Offsetof(n.CDW10), 40}, "cdw15": {unsafe.Offsetof(n.CDW15), 60},
		"timeout_ms": {unsafe.Offsetof(n.TimeoutMS), 64}, "result": {unsafe.Offsetof(n.Result), 68},
		"sg_io_hdr": {unsafe.Sizeof(h), 88}, "dxfer_direction": {unsafe.Offsetof(h.Direction), 4},
		"cmd_len": {unsafe.Offsetof(h.CommandBytes), 8}, "mx_sb_len": {unsafe.Offsetof(h.SenseBytes), 9},
		"dxfer_len": {unsafe.Offsetof(h.DataBytes), 12}, "dxferp": {unsafe.Offsetof(h.Data), 16},
		"cmdp": {unsafe.Offsetof(h.Command), 24}, "sbp": {unsafe.Offsetof(h.Sense), 32},
		"timeout": {unsafe.Offsetof(h.TimeoutMS), 40}, "flags": {unsafe.Offsetof(h.Flags), 44},
		"status": {unsafe.Offsetof(h.Status), 64}, "sb_len_wr": {unsafe.Offsetof(h.SenseWritten), 67},
		"host_status": {unsafe.Offsetof(h.HostStatus), 68}, "driver_status": {unsafe.Offsetof(h.DriverStatus), 70},
		"resid": {unsafe.Offsetof(h.Residual), 72}, "duration": {unsafe.Offsetof(h.DurationMS), 76},
	} {
		if c.got != c.want {
			t.Errorf("%s is at or has %d, want %d", name, c.got, c.want)
		}
	}
}

// controller simulates what an NVMe controller answers, and keeps what it was sent.
type controller struct {
	id, namespace [4096]byte
	active        []uint32
	states        []int // of the sanitize, one after the other
	action        byte  // of the sanitize that the status has
	refuses       map[uint8]bool
	sent          []string
	timeouts      []uint32
}

func (c *controller) admin(cmd *nvmeCommand, data []byte) error {
	c.sent = append(c.sent, fmt.Sprintf("%02x nsid=%x cdw10=%x data=%d", cmd.Opcode, cmd.NSID, cmd.CDW10, len(data)))
	c.timeouts = append(c.timeouts, cmd.TimeoutMS)
	if c.refuses[cmd.Opcode] {
		return errors.New("status 0x2001")
	}
	switch {
	case cmd.Opcode == nvmeIdentify && cmd.CDW10 == idController:
		copy(data, c.id[:])
	case cmd.Opcode == nvmeIdentify && cmd.CDW10 == idNamespace:
		copy(data, c.namespace[:])
	case cmd.Opcode == nvmeIdentify && cmd.CDW10 == idActive:
		for i, n := range c.active {
			binary.LittleEndian.PutUint32(data[4*i:], n)
		}
	case cmd.Opcode == nvmeGetLogPage:
		binary.LittleEndian.PutUint16(data, 0x8000)
		data[2], data[3] = byte(c.states[0]), 0xff // other bits are of other fields
		data[4] = c.action
		c.states = c.states[min(1, len(c.states)-1):]
	case cmd.Opcode == nvmeSanitize:
		c.action = byte(cmd.CDW10 & 7)
	}
	return nil
}

// wants checks the commands that were sent.
func (c *controller) wants(t *testing.T, name string, want ...string) {
	t.Helper()
	if got := strings.Join(c.sent, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("%s: sent\n%s\nwant\n%s", name, got, strings.Join(want, "\n"))
	}
}

const (
	sentController = "06 nsid=0 cdw10=1 data=4096"
	sentActive     = "06 nsid=0 cdw10=2 data=4096"
	sentNamespace  = "06 nsid=3 cdw10=0 data=4096"
	sentStatus     = "02 nsid=ffffffff cdw10=7f0081 data=512"
)

func TestSanitize(t *testing.T) {
	for name, c := range map[string]struct {
		can, cmic byte
		active    []uint32
		states    []int
		action    byte
		noise     bool
		err       string
		want      []string
	}{
		"block erase": {can: 0b111, active: []uint32{3}, states: []int{0, 2, 2, 1}, want: []string{sentController,
			sentActive, sentStatus, "84 nsid=0 cdw10=a data=0", sentStatus, sentStatus, sentStatus}},
		"crypto erase": {can: 0b001, active: []uint32{3}, states: []int{1, 4}, noise: true, want: []string{sentController,
			sentActive, sentStatus, "84 nsid=0 cdw10=c data=0", sentStatus}},
		"one is in progress": {can: 0b011, active: []uint32{3}, states: []int{2, 1}, action: 4, noise: true,
			want: []string{sentController, sentActive, sentStatus, sentStatus}},
		"it fails": {can: 0b010, active: []uint32{3}, states: []int{0, 3}, err: "the sanitize failed",
			want: []string{sentController, sentActive, sentStatus, "84 nsid=0 cdw10=a data=0", sentStatus,
				"84 nsid=0 cdw10=1 data=0"}},
		"it does not begin": {can: 0b010, active: []uint32{3}, states: []int{0, 0}, err: "has not begun",
			want: []string{sentController, sentActive, sentStatus, "84 nsid=0 cdw10=a data=0", sentStatus}},
		"overwrite only": {can: 0b100, active: []uint32{3}, err: "neither", want: []string{sentController, sentActive}},
		"another namespace": {can: 0b010, active: []uint32{1, 3}, err: "other namespaces",
			want: []string{sentController, sentActive}},
		"a namespace after it": {can: 0b010, active: []uint32{3, 4}, err: "other namespaces",
			want: []string{sentController, sentActive}},
		"another controller": {can: 0b010, cmic: 2, active: []uint32{3}, err: "another host",
			want: []string{sentController}},
	} {
		fake := &controller{active: c.active, states: c.states, action: c.action}
		fake.id[atSANICAP], fake.id[atCMIC] = c.can, c.cmic
		n := &NVMe{nsid: 3, admin: fake.admin, poll: time.Microsecond}
		noise, err := n.Sanitize(t.Context(), func(done, total int64) {
			if done != 0x8000 || total != 1<<16 {
				t.Errorf("%s: progress %d of %d", name, done, total)
			}
		})
		if noise != c.noise || fmt.Sprint(err) == "<nil>" != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: noise %v, %v; want noise %v, an error with %q", name, noise, err, c.noise, c.err)
		}
		fake.wants(t, name, c.want...)
	}
}

func TestSanitizeIsCancelled(t *testing.T) {
	fake := &controller{active: []uint32{3}, states: []int{2}}
	fake.id[atSANICAP] = 0b010
	ctx, cancel := context.WithCancel(t.Context())
	n := &NVMe{nsid: 3, admin: fake.admin, poll: time.Hour}
	_, err := n.Sanitize(ctx, func(int64, int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestFormatNVM(t *testing.T) {
	for name, c := range map[string]struct {
		oacs, fna byte
		active    []uint32
		refuses   bool
		err       string
		noise     bool
		want      []string
	}{
		// the namespace has format 0x25 with metadata at the end of its data, protection 2 in the first bytes
		"of one namespace": {oacs: 2, active: []uint32{1, 3}, want: []string{sentController, sentNamespace,
			"80 nsid=3 cdw10=1355 data=0"}},
		"of all of one": {oacs: 2, fna: 3, active: []uint32{3}, want: []string{sentController, sentActive, sentNamespace,
			"80 nsid=3 cdw10=1355 data=0"}},
		"of all of two": {oacs: 2, fna: 2, active: []uint32{1, 3}, err: "other namespaces",
			want: []string{sentController, sentActive}},
		"crypto": {oacs: 2, fna: 4, refuses: true, noise: true, err: "status", want: []string{sentController,
			sentNamespace, "80 nsid=3 cdw10=1355 data=0", "80 nsid=3 cdw10=1555 data=0"}},
		"unsupported": {err: "does not support", want: []string{sentController}},
	} {
		fake := &controller{active: c.active, refuses: map[uint8]bool{nvmeFormat: c.refuses}}
		fake.id[atOACS], fake.id[atFNA] = c.oacs, c.fna
		fake.namespace[26], fake.namespace[29] = 0b0011_0101, 0b1010
		n := &NVMe{nsid: 3, admin: fake.admin}
		noise, err := n.Format()
		if noise != c.noise || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: noise %v, %v; want noise %v, an error with %q", name, noise, err, c.noise, c.err)
		}
		fake.wants(t, name, c.want...)
	}
}

// disk simulates what a disk of ATA answers to SECURITY commands, and keeps what it was sent.
type disk struct {
	words            map[int]uint16
	enabled, refuses bool
	sent             []string
}

func (d *disk) pass(cdb *[16]byte, direction int32, data []byte, timeout time.Duration) error {
	text := fmt.Sprintf("%s %d", hex.EncodeToString(cdb[:]), direction)
	if direction == sgToDev {
		text += " " + hex.EncodeToString(bytes.TrimRight(data, "\x00"))
	}
	if cdb[14] == ataEraseUnit {
		text += " " + timeout.String()
	}
	d.sent = append(d.sent, text)
	switch cdb[14] {
	case ataIdentify:
		for n, v := range d.words {
			binary.LittleEndian.PutUint16(data[2*n:], v)
		}
		if d.enabled {
			data[256] |= 1 << 1
		}
	case ataSetPassword:
		d.enabled = true
	case ataEraseUnit:
		if d.refuses {
			return errors.New("sense key 0xb, code 0x00/0x00")
		}
		d.enabled = false
	case ataDisable:
		d.enabled = false
	}
	return nil
}

const (
	// the password is after one word
	password     = "0000" + "747269766574"
	cdbIdentify  = "85080e000000010000000000" + "0000ec00 -3"
	cdbPassword  = "850a06000000010000000000" + "0000f100 -2 " + password
	cdbPrepare   = "850600000000000000000000" + "0000f300 -1"
	cdbErase     = "850a06000000010000000000" + "0000f400 -2 " + password
	cdbDisable   = "850a06000000010000000000" + "0000f600 -2 " + password
	supportedATA = 1 << 1
)

func TestATASecureErase(t *testing.T) {
	supported := func(status, minutes uint16) map[int]uint16 {
		return map[int]uint16{82: supportedATA, 128: 1 | status, 89: minutes}
	}
	for name, c := range map[string]struct {
		words            map[int]uint16
		enabled, refuses bool
		err              string
		takes            time.Duration
		want             []string
	}{
		"it is erased": {words: supported(0, 90), takes: 3 * time.Hour, want: []string{cdbIdentify, cdbPassword,
			cdbPrepare, cdbErase + " 6h0m0s", cdbIdentify}},
		"it takes long": {words: supported(0, 1<<15|400), takes: 800 * time.Minute, want: []string{cdbIdentify,
			cdbPassword, cdbPrepare, cdbErase + " 26h40m0s", cdbIdentify}},
		"an erase was interrupted": {words: supported(1<<2, 1), enabled: true, takes: 2 * time.Minute,
			want: []string{cdbIdentify, cdbPrepare, cdbErase + " 1h0m0s", cdbIdentify}},
		"it refuses": {words: supported(0, 0), refuses: true, err: "secure erase: sense key 0xb", want: []string{
			cdbIdentify, cdbPassword, cdbPrepare, cdbErase + " 1h0m0s", cdbDisable}},
		"frozen":      {words: supported(1<<3, 1), err: "frozen", want: []string{cdbIdentify}},
		"expired":     {words: supported(1<<4, 1), err: "too often", want: []string{cdbIdentify}},
		"unsupported": {err: "does not support", want: []string{cdbIdentify}},
	} {
		fake := &disk{words: c.words, enabled: c.enabled, refuses: c.refuses}
		takes := time.Duration(0)
		err := (&ATA{fake.pass}).Erase(func(d time.Duration) { takes = d })
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || takes != c.takes {
			t.Errorf("%s: %v, takes %s; want an error with %q, %s", name, err, takes, c.err, c.takes)
		}
		if got := strings.Join(fake.sent, "\n"); got != strings.Join(c.want, "\n") {
			t.Errorf("%s: sent\n%s\nwant\n%s", name, got, strings.Join(c.want, "\n"))
		}
		if fake.enabled {
			t.Errorf("%s: the disk has a password", name)
		}
	}
}

func TestOutcomeOfSCSI(t *testing.T) {
	fixed := append([]byte{0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0x01}, make([]byte, 4)...)
	for name, c := range map[string]struct {
		h     sgHeader
		sense []byte
		want  string
	}{
		"good":         {sgHeader{}, nil, "<nil>"},
		"only a sense": {sgHeader{DriverStatus: 8, SenseWritten: 8}, make([]byte, 8), "<nil>"},
		"fixed sense":  {sgHeader{Status: 2, DriverStatus: 8, SenseWritten: 18}, fixed, "sense key 0x5, code 0x20/0x01"},
		"descriptors": {sgHeader{Status: 2, SenseWritten: 22}, []byte{0x72, 0x0b, 0x44, 0x02, 0},
			"sense key 0xb, code 0x44/0x02"},
		"no connection": {sgHeader{HostStatus: 1}, nil, "status 0x0, host 0x1, driver 0x0"},
	} {
		if got := fmt.Sprint(c.h.outcome(c.sense)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A disk that has none of these commands refuses them.
func TestNoDiskOfThisKind(t *testing.T) {
	node := loop(t, file(t, 16<<20))
	d, err := Open(node)
	must(t, err)
	defer d.Close()
	if _, err := d.NVMe(); err == nil {
		t.Error("a loop device is a namespace of NVMe")
	}
	a, err := d.ATA()
	must(t, err)
	if err := a.Erase(func(time.Duration) {}); err == nil {
		t.Error("a loop device is erased by ATA")
	}
	if err := d.SecureDiscard(0, 4096); err == nil {
		t.Error("a loop device has a secure discard")
	}
}

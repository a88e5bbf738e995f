package bmc

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/trivet-project/trivet"
)

// record returns a standard record with an ID, of one second for each.
func record(id uint16) []byte {
	r := []byte{byte(id), byte(id >> 8), 2, 0, 0, 0, 0, 0x20, 0, 4, 0x09, 1, 0x6f, 0x04, 0xff, 0xff}
	binary.LittleEndian.PutUint32(r[3:], 1_700_000_000+uint32(id))
	return r
}

// log answers as a BMC whose log has records, the newest last.
func log(size int, records ...[]byte) func(message) []byte {
	return func(m message) []byte {
		switch m.command {
		case cmdSELInfo:
			return slices.Concat([]byte{0, 0x51, byte(size), byte(size >> 8)}, make([]byte, 11))
		case cmdSELTime:
			return append([]byte{0}, le32(1_700_000_500)...)
		case cmdSELEntry:
			id := binary.LittleEndian.Uint16(m.data[2:])
			for _, r := range slices.Backward(records) {
				if id == selLast || binary.LittleEndian.Uint16(r) == id {
					return slices.Concat([]byte{0, 0xff, 0xff}, r)
				}
			}
			return []byte{codeNotPresent}
		}
		return []byte{0}
	}
}

func readLog(t *testing.T, answer func(message) []byte) (ids []int, requests int, err error) {
	t.Helper()
	f := &fakeBMC{suites: []int{17}, data: answer}
	b := &ipmiBMC{session: &rmcpSession{conn: f}, used: time.Now()}
	if err := b.session.login(t.Context(), fakeUser, fakePassword); err != nil {
		t.Fatal(err)
	}
	events, err := b.Events(t.Context(), 5)
	for _, e := range events.Entries {
		ids = append(ids, int(e.Time.Unix()-1_700_000_000))
	}
	return ids, len(f.requests), err
}

// The IDs of records may have gaps and begin again; what the BMC answers in their place is not read twice.
func TestSELRecordIDs(t *testing.T) {
	const info = 2                    // requests before the first entry
	other := func(m message) []byte { // the last record, whatever is asked for
		if m.command == cmdSELEntry {
			return slices.Concat([]byte{0, 1, 0}, record(9))
		}
		return log(100)(m)
	}
	for name, c := range map[string]struct {
		answer   func(message) []byte
		want     []int
		requests int
		err      error
	}{
		"gaps":      {log(4, record(3), record(4), record(7), record(9)), []int{3, 4, 7, 9}, info + 7, nil},
		"wide gaps": {log(3, record(3), record(900), record(901)), []int{900, 901}, info + 6, nil},
		"begins again": {log(4, record(0xfffd), record(0xfffe), record(1), record(2)), []int{0xfffd, 0xfffe, 1, 2},
			info + 4, nil},
		"long": {log(0xffff, record(10), record(11), record(12), record(13), record(14), record(15)),
			[]int{11, 12, 13, 14, 15}, info + 5, nil},
		"empty":       {log(0), nil, info, nil},
		"lies":        {log(7), nil, info + 1, trivet.ErrInvalid},
		"other":       {other, []int{9}, info + 10, nil},
		"id 0":        {log(2, record(0)), []int{0}, info + 4, nil},
		"short info":  {func(message) []byte { return []byte{0, 1, 2} }, nil, 1, trivet.ErrInvalid},
		"short entry": {log(1, record(1)[:15]), nil, info + 1, trivet.ErrInvalid},
		"long entry":  {log(1, append(record(1), make([]byte, 200)...)), []int{1}, info + 1, nil},
		"unknown":     {func(message) []byte { return []byte{codeUnknown} }, nil, 1, ErrNoEventLog},
		"forbidden":   {func(message) []byte { return []byte{codePrivilege} }, nil, 1, trivet.ErrForbidden},
	} {
		got, requests, err := readLog(t, c.answer)
		if !slices.Equal(got, c.want) || requests != c.requests || !errors.Is(err, c.err) {
			t.Errorf("%s: %v by %d requests, %v; want %v by %d, %v", name, got, requests, err, c.want, c.requests, c.err)
		}
	}
}

// A BMC that is lost during the reading has given what was read before.
func TestSELIsLost(t *testing.T) {
	all := log(4, record(1), record(2), record(3), record(4))
	got, _, err := readLog(t, func(m message) []byte {
		if m.command == cmdSELEntry && m.data[2] == 2 {
			return []byte{codeBusy}
		}
		return all(m)
	})
	if !slices.Equal(got, []int{3, 4}) || !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestDecodeSEL(t *testing.T) {
	at := []byte{0x00, 0xf1, 0x53, 0x65} // 1700000000
	for want, r := range map[string][]byte{
		"2023-11-14T22:13:20Z Power Unit 0x01: AC lost, asserted (event type 0x6f, data 04 ff ff)": slices.Concat(
			[]byte{1, 0, 2}, at, []byte{0x20, 0, 4, 0x09, 1, 0x6f, 4, 0xff, 0xff}),
		"2023-11-14T22:13:20Z Temperature 0x30: upper critical going high, deasserted " +
			"(event type 0x01, data 59 7f 7d)": slices.Concat(
			[]byte{1, 0, 2}, at, []byte{0x20, 0, 4, 0x01, 0x30, 0x81, 0x59, 0x7f, 0x7d}),
		"2023-11-14T22:13:20Z OEM sensor of type 0xd0 0x30: asserted (event type 0x70, data 01 02 03)": slices.Concat(
			[]byte{1, 0, 2}, at, []byte{0x20, 0, 4, 0xd0, 0x30, 0x70, 1, 2, 3}),
		"0001-01-01T00:00:00Z sensor of type 0x00 0x30: asserted (event type 0x00, data 00 00 00), " +
			"1m5s after the BMC started": {
			1, 0, 2, 65, 0, 0, 0, 0x20, 0, 4, 0, 0x30, 0, 0, 0, 0},
		"0001-01-01T00:00:00Z Fan 0x30: asserted (event type 0x6f, data 0f 00 00)": {
			1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 4, 4, 0x30, 0x6f, 0x0f, 0, 0},
		"2023-11-14T22:13:20Z OEM record 0xc1 of manufacturer 0x0002a2: 01 02 03 04 05 06": slices.Concat(
			[]byte{1, 0, 0xc1}, at, []byte{0xa2, 2, 0, 1, 2, 3, 4, 5, 6}),
		"0001-01-01T00:00:00Z OEM record 0xe0: 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d": {
			1, 0, 0xe0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13},
		"2023-11-14T22:13:20Z record of type 0x05: 01 02 03 04 05 06 07 08 09": slices.Concat(
			[]byte{1, 0, 5}, at, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}),
	} {
		e := decodeSEL([selSize]byte(r))
		if got := e.Time.Format(time.RFC3339) + " " + e.Text; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func FuzzDecodeSEL(f *testing.F) {
	f.Add(record(1))
	f.Fuzz(func(t *testing.T, r []byte) {
		if len(r) < selSize {
			return
		}
		e := decodeSEL([selSize]byte(r[:selSize]))
		if e.Text == "" || len(e.Text) > maxEventText ||
			strings.ContainsFunc(e.Text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", e.Text)
		}
	})
}

func FuzzEventText(f *testing.F) {
	f.Add("DIMM\x00 \xff\u202e" + strings.Repeat("\u00e9", 999))
	f.Fuzz(func(t *testing.T, s string) {
		if got := eventText(s); len(got) > maxEventText || eventText(got) != got ||
			strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: %q", s, got)
		}
	})
}

package bmc_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// events reads the event log.
func events(t *testing.T, cfg bmc.Config, limit int) (bmc.Events, error) {
	t.Helper()
	return open(t, cfg).(bmc.EventLog).Events(t.Context(), limit)
}

func texts(e bmc.Events) (all []string) {
	for _, entry := range e.Entries {
		all = append(all, entry.Text)
	}
	return all
}

// ipmi_sim has a real event log: of it the newest entries are read. Its clock is not set at first.
func TestIPMIEvents(t *testing.T) {
	for _, size := range []int{0, 1, 3, 400} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			log, want := [][14]byte{}, []string(nil)
			for i := range size {
				sensor := byte(i % 250)
				log = append(log, [14]byte{2, 0, 0, 0, 0, 0x20, 0, 4, 0x0c, sensor, 0x6f, 0xa1, 0xff, byte(i)})
				want = append(want, fmt.Sprintf("Memory %#02x: uncorrectable ECC, asserted (event type 0x6f, data a1 ff %02x), ",
					sensor, byte(i)))
			}
			sim, err := bmctest.StartIPMI(bmctest.NewBox(), bmctest.Options{Events: log})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { sim.Stop() })
			got, err := events(t, sim.Config, 20)
			all := texts(got)
			for i := range all {
				start, after, _ := strings.Cut(all[i], "),")
				if all[i] = start + "), "; !strings.HasSuffix(after, "s after the BMC started") || !got.Entries[i].Time.IsZero() {
					t.Errorf("at %s%s", got.Entries[i].Time, after)
				}
			}
			if want = want[max(0, len(want)-20):]; err != nil || !slices.Equal(all, want) || !got.Now.IsZero() {
				t.Fatalf("%q at %s, %v; want %q", all, got.Now, err, want)
			}
		})
	}
}

// Once the clock of ipmi_sim is set, entries have their times by it.
func TestIPMIEventTimes(t *testing.T) {
	sim, err := bmctest.StartIPMI(bmctest.NewBox(), bmctest.Options{Events: make([][14]byte, 2)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Stop() })
	c, clock := open(t, sim.Config), time.Now().Add(-3*time.Hour)
	const storage, addEntry, setTime = 0x0a, 0x44, 0x49
	entry := []byte{0, 0, 2, 0, 0, 0, 0, 0x20, 0, 4, 0x09, 1, 0x6f, 4, 0xff, 0xff}
	err = errors.Join(bmc.Call(t.Context(), c, storage, 0x47, 0, 0, 'C', 'L', 'R', 0xaa),
		bmc.Call(t.Context(), c, storage, setTime, binary.LittleEndian.AppendUint32(nil, uint32(clock.Unix()))...),
		bmc.Call(t.Context(), c, storage, addEntry, entry...))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.(bmc.EventLog).Events(t.Context(), 20)
	want := []string{"Power Unit 0x01: AC lost, asserted (event type 0x6f, data 04 ff ff)"}
	if err != nil || !slices.Equal(texts(got), want) {
		t.Fatalf("%q, %v; want %q", texts(got), err, want)
	}
	for _, at := range []time.Time{got.Now, got.Entries[0].Time} {
		if off := at.Sub(clock); off < -time.Minute || off > time.Minute {
			t.Errorf("at %s; want %s", at, clock)
		}
	}
}

// Of a BMC without an event log that is the error.
func TestNoEvents(t *testing.T) {
	for name, start := range map[string]func(bmctest.TB, bmctest.Machine) bmc.Config{
		"go-ipmi": goIPMI(types.CipherSuiteID17),
		"redfish": bmctest.Redfish,
	} {
		got, err := events(t, start(t, bmctest.NewBox()), 20)
		if !errors.Is(err, bmc.ErrNoEventLog) || len(got.Entries) > 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestRedfishEvents(t *testing.T) {
	all := []bmctest.LogEntry{}
	for i := range 150 {
		all = append(all, bmctest.LogEntry{Created: time.Unix(1e9+int64(i), 0), Severity: "Critical",
			Message: fmt.Sprint("DIMM ", i, " failed\r\n\x1b[31m")})
	}
	for _, size := range []int{0, 1, 2, 30, 150} {
		for name, l := range map[string]bmctest.Log{
			"whole":                  {},
			"in pages":               {Page: 50},
			"newest first":           {NewestFirst: true},
			"newest first, in pages": {NewestFirst: true, Page: 50},
			"links":                  {Links: true},
			"links, newest first":    {Links: true, NewestFirst: true, Page: 50},
			"of the manager":         {Manager: true, Links: true, Page: 40},
		} {
			l.Entries, l.Now = all[:size], time.Unix(1e9, 0)
			service := bmctest.NewService(bmctest.NewBox())
			service.SetLog(l)
			got, err := events(t, bmctest.Serve(t, service), 20)
			var want []string
			for i := max(0, size-20); i < size; i++ {
				want = append(want, fmt.Sprint("Critical: DIMM ", i, " failed [31m"))
			}
			if err != nil || !slices.Equal(texts(got), want) || !got.Now.Equal(l.Now) {
				t.Errorf("%s: %q at %s, %v; want %q", name, texts(got), got.Now, err, want)
			}
			if n := len(got.Entries); n > 0 && !got.Entries[n-1].Time.Equal(all[size-1].Created) {
				t.Errorf("%s: the last one is of %s", name, got.Entries[n-1].Time)
			}
		}
	}
}

// What a hostile or broken service lists is bounded, and its links lead to no other place.
func TestRedfishOddEvents(t *testing.T) {
	const entries = bmctest.LogPath + "/Entries"
	for name, c := range map[string]struct{ body, want string }{
		"not JSON":          {`<html>`, "not valid Redfish"},
		"no list":           {`{"Members":{}}`, "no list"},
		"null":              {`{"Members":null}`, "no list"},
		"other types":       {`{"Members":[7]}`, "not valid Redfish"},
		"too large":         {`"` + strings.Repeat("x", 1<<20) + `"`, "1048576 bytes"},
		"many":              {`{"Members":[` + strings.Repeat("{},", 10_000) + `{}]}`, "over 10000 entries"},
		"huge count":        {`{"Members":[],"Members@odata.count":1e30}`, "not valid Redfish"},
		"without links":     {`{"Members":[{},{}]}`, "without a link"},
		"links elsewhere":   {`{"Members":[{"@odata.id":"https://evil/redfish/v1/"}]}`, "not a path"},
		"links upwards":     {`{"Members":[{"@odata.id":"/redfish/../admin"}]}`, "not a path"},
		"links with query":  {`{"Members":[{"@odata.id":"/redfish/v1/?a=b"}]}`, "not a path"},
		"a link to itself":  {`{"Members":[{"@odata.id":"` + entries + `"}]}`, ""},
		"negative count":    {`{"Members":[],"Members@odata.count":-5}`, ""},
		"a huge message":    {`{"Members":[{"Message":"` + strings.Repeat("x", 1<<19) + `"}]}`, ""},
		"always more":       {`{"Members":[{"Message":"a"}],"Members@odata.count":9999999}`, ""},
		"control and bidi":  {`{"Members":[{"Message":"\u009b31ma\u202eb","Created":"0000-00-00T00:00:00Z"}]}`, ""},
		"a time of no year": {`{"Members":[{"Message":"a","Created":"0001-01-01T00:00:00Z"}]}`, ""},
	} {
		service, requests := bmctest.NewService(bmctest.NewBox()), 0
		service.SetLog(bmctest.Log{Entries: []bmctest.LogEntry{{Message: "a"}}})
		cfg := bmctest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != entries {
				service.ServeHTTP(w, r)
				return
			}
			requests++
			fmt.Fprint(w, c.body)
		}))
		cfg.User, cfg.Password = service.User, service.Password
		got, err := events(t, cfg, 20)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if requests > 2 || len(got.Entries) > 20 {
			t.Errorf("%s: %d requests, %d entries", name, requests, len(got.Entries))
		}
		for _, e := range got.Entries {
			if len(e.Text) > 240 || strings.ContainsAny(e.Text, "\u009b\u202e\n") || !e.Time.IsZero() {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
}

// The names of sensors and events are those that another implementation has for the same numbers.
func TestEventNames(t *testing.T) {
	alike := func(ours, theirs string) bool { // have a word in common
		theirs = strings.ToLower(theirs)
		return slices.ContainsFunc(strings.Fields(strings.ToLower(ours)), func(word string) bool {
			return len(word) > 1 && strings.Contains(theirs, strings.Trim(word, ","))
		})
	}
	for sensor := range byte(0x2d) {
		if sensor == 0 {
			continue
		}
		name, theirs := bmc.SensorName(sensor), types.SensorType(sensor).String()
		if !alike(name, theirs) {
			t.Errorf("sensor %#02x is %q, elsewhere %q", sensor, name, theirs)
		}
		for event := range byte(0x70) {
			for offset := range byte(16) {
				ours := bmc.EventName(sensor, event, offset)
				theirs := types.EventReadingType(event).EventForOffset(types.SensorType(sensor), offset)
				if ours != "" && (theirs == nil || !alike(ours, theirs.EventName)) {
					t.Errorf("event %#02x/%#02x/%d is %q, elsewhere %+v", sensor, event, offset, ours, theirs)
				}
			}
		}
	}
}

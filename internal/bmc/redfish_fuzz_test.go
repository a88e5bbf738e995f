package bmc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// A service that answers everything with the same hostile text makes the client fail cleanly: no panic, no request
// to another place, an error of a known kind.
func FuzzRedfishAnswers(f *testing.F) {
	f.Add(200, "", `{"Systems":{"@odata.id":"/redfish/v1/Systems"},"Links":{"Sessions":{"@odata.id":"/redfish/v1/S"}},`+
		`"Members":[{"@odata.id":"/redfish/v1/Systems/1"}],"PowerState":"Off",`+
		`"LogServices":{"@odata.id":"/redfish/v1/L"},"Entries":{"@odata.id":"/redfish/v1/E"},"LogEntryType":"SEL",`+
		`"DateTime":"2026-01-01T00:00:00Z","@odata.etag":"W/\"1\"",`+
		`"Boot":{"BootSourceOverrideTarget@Redfish.AllowableValues":["Pxe"]},`+
		`"Actions":{"#ComputerSystem.Reset":{"target":"/redfish/v1/R","ResetType@Redfish.AllowableValues":["On"]}}}`)
	f.Add(307, "https://elsewhere/redfish/v1/", `{}`)
	f.Add(401, "", `{"error":{"@Message.ExtendedInfo":[{"Message":"\u0000"}]}}`)
	f.Add(200, "\r\n", `{"Systems":{"@odata.id":"/redfish/%2e%2e/"},"Members":[null,{"@odata.id":"//x/redfish/"}]}`)
	f.Fuzz(func(t *testing.T, status int, header, body string) {
		if status < 200 || status > 599 {
			return
		}
		cfg := Config{Protocol: Redfish, Address: "bmc.test", User: "u", Password: "hunter2-hunter2"}
		wire, _, err := newRedfishWire(cfg)
		if err != nil {
			t.Fatal(err)
		}
		wire.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host != "bmc.test" || r.URL.Scheme != "https" || !strings.HasPrefix(r.URL.Path, "/redfish/") {
				t.Errorf("request to %s", r.URL)
			}
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r,
				Header: http.Header{"Etag": {header}, "Location": {header}, "X-Auth-Token": {header}}}, nil
		})
		b := &redfishBMC{cfg: cfg, wire: wire}
		defer b.Close()
		errs := []error{b.open(t.Context())}
		_, err = b.Power(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the state will never settle
		events, e := b.Events(t.Context(), 3)
		if len(events.Entries) > 3 {
			t.Errorf("%d entries", len(events.Entries))
		}
		errs = append(errs, e, err, b.sendPower(t.Context(), On), b.SetPower(ctx, On), b.SetNextBoot(t.Context(), Network))
		for _, err := range errs {
			if err != nil && (!known(err) || strings.Contains(err.Error(), cfg.Password) || len(err.Error()) > 4096) {
				t.Errorf("error: %v", err)
			}
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func known(err error) bool {
	for _, kind := range []error{trivet.ErrInvalid, trivet.ErrUnauthenticated, trivet.ErrForbidden, trivet.ErrNotFound,
		trivet.ErrConflict, trivet.ErrUnavailable, trivet.ErrUnknown, trivet.ErrTooLarge} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

package bmc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// around runs the simulated service behind a filter that may answer instead.
func around(t *testing.T, box *bmctest.Box, filter func(http.ResponseWriter, *http.Request) bool) (
	bmc.Config, *bmctest.Service) {
	t.Helper()
	service := bmctest.NewService(box)
	cfg := bmctest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !filter(w, r) {
			service.ServeHTTP(w, r)
		}
	}))
	cfg.User, cfg.Password = service.User, service.Password
	return cfg, service
}

// when answers matching requests with a status and a body.
func when(method, path string, status int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != method || r.URL.Path != path {
			return false
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
		return true
	}
}

func TestRedfishSessionEndsWithTheClient(t *testing.T) {
	box := bmctest.NewBox()
	cfg, service := around(t, box, func(w http.ResponseWriter, r *http.Request) bool {
		if _, _, basic := r.BasicAuth(); basic {
			t.Error("the password was sent beside the session's token")
		}
		return false
	})
	c, err := bmc.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if n := service.Sessions(); n != 1 {
		t.Errorf("%d sessions while open", n)
	}
	check(t, c, bmc.Off)
	c.Close()
	if n := service.Sessions(); n != 0 {
		t.Errorf("%d sessions after Close", n)
	}
}

func TestRedfishWithoutSessionsSendsThePassword(t *testing.T) {
	const sessions = "/redfish/v1/SessionService/Sessions"
	for name, filter := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"none offered":      when("GET", "/redfish/v1/", 200, `{"Systems":{"@odata.id":"/redfish/v1/Systems"}}`),
		"not allowed":       when("POST", sessions, 405, ""),
		"all taken":         when("POST", sessions, 503, `{"error":{"message":"SessionLimitExceeded"}}`),
		"no token in reply": when("POST", sessions, 200, `{}`),
	} {
		t.Run(name, func(t *testing.T) {
			box := bmctest.NewBox()
			cfg, _ := around(t, box, filter)
			c := open(t, cfg)
			set(t, c, bmc.On)
			check(t, c, bmc.On)
		})
	}
}

// The token of a session must not leave the BMC, whatever it answers.
func TestRedfishStaysAtItsService(t *testing.T) {
	stolen := 0
	thief := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen++
		fmt.Fprint(w, `{"PowerState":"Off"}`)
	}))
	defer thief.Close()
	redirect := func(to string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != bmctest.SystemPath {
				return false
			}
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			return true
		}
	}
	member := func(link string) func(http.ResponseWriter, *http.Request) bool {
		return when("GET", "/redfish/v1/Systems", 200, fmt.Sprintf(`{"Members":[{"@odata.id":%q}]}`, link))
	}
	for name, filter := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"redirect to another host": redirect(thief.URL + bmctest.SystemPath),
		"redirect out of Redfish":  redirect("/admin"),
		"redirect in a loop":       redirect(bmctest.SystemPath),
		"link to another host":     member(thief.URL + bmctest.SystemPath),
		"link without a scheme":    member("//" + strings.TrimPrefix(thief.URL, "https://") + "/redfish/v1/"),
		"redirect to another name": redirect("https://localhost.localdomain" + bmctest.SystemPath),
		"link upwards":             member("/redfish/v1/../../admin"),
		"hidden link upwards":      member("/redfish/v1/%2e%2e/%2e%2e/admin"),
		"link with a query":        member("/redfish/v1/Systems/1?x"),
		"empty link":               member(""),
	} {
		cfg, _ := around(t, bmctest.NewBox(), filter)
		c, err := bmc.Open(t.Context(), cfg)
		if err == nil {
			_, err = c.Power(t.Context())
			c.Close()
		}
		if err == nil || stolen != 0 {
			t.Errorf("%s: %v, %d requests elsewhere", name, err, stolen)
		}
	}
	followed := 0
	cfg, _ := around(t, bmctest.NewBox(), func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/redfish/v1/Systems/" {
			if r.URL.Path == "/redfish/v1/Systems" && followed == 0 {
				followed++
				http.Redirect(w, r, "/redfish/v1/Systems/", http.StatusPermanentRedirect)
				return true
			}
			return false
		}
		fmt.Fprint(w, `{"Members":[{"@odata.id":"`+bmctest.SystemPath+`"}]}`)
		return true
	})
	check(t, open(t, cfg), bmc.Off)
	if followed != 1 {
		t.Error("the redirect to the same service was not followed")
	}
}

func TestRedfishAddresses(t *testing.T) {
	box := bmctest.NewBox()
	cfg, _ := around(t, box, when("GET", "/redfish/v1/Systems", 200,
		`{"Members":[{"@odata.id":"/redfish/v1/Systems/1"},{"@odata.id":"/redfish/v1/Systems/2"}]}`))
	host := cfg.Address
	for address, want := range map[string]error{
		host:                                      trivet.ErrInvalid, // two systems
		"https://" + host:                         trivet.ErrInvalid,
		"https://" + host + "/redfish/v1/":        trivet.ErrInvalid,
		"https://" + host + bmctest.SystemPath:    nil,
		"ftp://" + host:                           trivet.ErrInvalid,
		"https://" + host + "/admin":              trivet.ErrInvalid,
		"https://u:p@" + host:                     trivet.ErrInvalid,
		"https://" + host + "/redfish/v1/x/../..": trivet.ErrInvalid,
		"https://":                                trivet.ErrInvalid,
		"%zz":                                     trivet.ErrInvalid,
		"127.0.0.1:1":                             trivet.ErrUnavailable,
	} {
		cfg.Address = address
		c, err := bmc.Open(t.Context(), cfg)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v; want %v", address, err, want)
		}
		if err == nil {
			check(t, c, bmc.Off)
			c.Close()
		}
	}
	cfg.Address, cfg.Insecure = "http://"+host, false
	if _, err := bmc.Open(t.Context(), cfg); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("plain http: %v", err)
	}
	cfg.Address = host
	if _, err := bmc.Open(t.Context(), cfg); !errors.Is(err, trivet.ErrUnavailable) ||
		!strings.Contains(err.Error(), "spec.insecure") {
		t.Errorf("a certificate that cannot be verified: %v", err)
	}
}

func TestRedfishOddAnswers(t *testing.T) {
	systemWith := func(body string) func(http.ResponseWriter, *http.Request) bool {
		return when("GET", bmctest.SystemPath, 200, body)
	}
	const reset = bmctest.SystemPath + "/Actions/ComputerSystem.Reset"
	resetWith := func(status int, body string) func(http.ResponseWriter, *http.Request) bool {
		return when("POST", reset, status, body)
	}
	const (
		offWith = `{"PowerState":"Off","Actions":{"#ComputerSystem.Reset":{"target":`
		denied  = `{"error":{"@Message.ExtendedInfo":[{"Message":"InsufficientPrivilege","Resolution":"Ask."}]}}`
	)
	odd := `{"error":{"message":"a\u001b[31mb\r\nc` + strings.Repeat("d", 9999) + `"}}`
	button := offWith + `"` + reset + `","ResetType@Redfish.AllowableValues":["PushPowerButton"]}}}`
	cases := map[string]struct {
		filter func(http.ResponseWriter, *http.Request) bool
		want   error
		says   string
	}{
		"only a button":       {systemWith(button), trivet.ErrInvalid, "PushPowerButton"},
		"no power control":    {systemWith(`{"PowerState":"Off"}`), trivet.ErrInvalid, "no power control"},
		"power state unknown": {systemWith(`{"PowerState":null}`), trivet.ErrUnavailable, "power state"},
		"not JSON":            {systemWith(`<html>`), trivet.ErrInvalid, "not valid Redfish"},
		"another type":        {systemWith(`{"PowerState":7}`), trivet.ErrInvalid, "not valid Redfish"},
		"too large":           {systemWith(`"` + strings.Repeat("x", 1<<20) + `"`), trivet.ErrTooLarge, ""},
		"deep":                {systemWith(strings.Repeat(`[`, 1<<19)), trivet.ErrInvalid, ""},
		"action elsewhere":    {systemWith(offWith + `"https://evil/redfish/v1/"}}}`), trivet.ErrInvalid, "not a path"},
		"forbidden":           {resetWith(403, denied), trivet.ErrForbidden, "InsufficientPrivilege Ask."},
		"busy":                {resetWith(503, ``), trivet.ErrUnavailable, "503"},
		"failed half-way":     {resetWith(500, ``), trivet.ErrUnknown, "500"},
		"control characters":  {resetWith(400, odd), trivet.ErrInvalid, "a [31mb  cd"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			box := bmctest.NewBox()
			cfg, _ := around(t, box, c.filter)
			err := open(t, cfg).SetPower(t.Context(), bmc.On)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 1000 {
				t.Errorf("%v; want %v with %q", err, c.want, c.says)
			}
			log(t, box)
		})
	}
}

func TestRedfishNextBootIsTriedAgainAfterAConflict(t *testing.T) {
	box, conflicts := bmctest.NewBox(), 1
	cfg, _ := around(t, box, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != "PATCH" || conflicts == 0 {
			return false
		}
		conflicts--
		w.WriteHeader(http.StatusPreconditionFailed)
		return true
	})
	c := open(t, cfg)
	if err := c.SetNextBoot(t.Context(), bmc.Network); err != nil {
		t.Error(err)
	}
	conflicts = 2
	if err := c.SetNextBoot(t.Context(), bmc.Disk); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("two conflicts: %v; want ErrConflict", err)
	}
	log(t, box, "boot network")
}

func TestRedfishCallsEnd(t *testing.T) {
	box, release := bmctest.NewBox(), make(chan struct{})
	hang := false
	cfg, _ := around(t, box, func(_ http.ResponseWriter, r *http.Request) bool {
		if hang && r.Method != "DELETE" {
			<-release
		}
		return false
	})
	c := open(t, cfg)
	hang = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Power(ctx); !errors.Is(err, trivet.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a BMC that hangs: %v", err)
	}
	close(release)
}

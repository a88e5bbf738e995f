package bmc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/trivet-project/trivet"
)

// The parts of Redfish resources that are read. BMCs add, omit and misspell other fields, which are ignored.

type link struct {
	ID string `json:"@odata.id"`
}

type serviceRoot struct {
	Systems link `json:"Systems"`
	Links   struct {
		Sessions link `json:"Sessions"`
	} `json:"Links"`
}

type collection struct {
	Members []link `json:"Members"`
}

// list returns some members as text for an error.
func (c collection) list() string {
	var b strings.Builder
	for i, m := range c.Members {
		if i == 8 {
			b.WriteString(" ...")
			break
		}
		fmt.Fprintf(&b, " %.100q", m.ID)
	}
	return b.String()
}

type system struct {
	ETag       string `json:"@odata.etag"`
	PowerState string `json:"PowerState"`
	Boot       struct {
		Mode    string   `json:"BootSourceOverrideMode"`
		Allowed []string `json:"BootSourceOverrideTarget@Redfish.AllowableValues"`
	} `json:"Boot"`
	Actions struct {
		Reset struct {
			Target  string   `json:"target"`
			Allowed []string `json:"ResetType@Redfish.AllowableValues"`
		} `json:"#ComputerSystem.Reset"`
	} `json:"Actions"`
}

// state maps the service's PowerState. An unknown value is an error: it must not be read as off.
func (s system) state() (State, error) {
	switch s.PowerState {
	case "On", "Paused":
		return On, nil
	case "Off":
		return Off, nil
	case "PoweringOn", "PoweringOff":
		return Changing, nil
	}
	return "", fmt.Errorf("%w: the BMC reports the unknown power state %.40q", trivet.ErrUnavailable, s.PowerState)
}

// redfishError is an error response of the service.
type redfishError struct {
	method  string
	status  int
	message string
}

func (e *redfishError) Error() string {
	text := fmt.Sprintf("the BMC answered %d %s", e.status, http.StatusText(e.status))
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// Is maps the status to the errors of the root package.
func (e *redfishError) Is(target error) bool {
	switch {
	case e.status == http.StatusUnauthorized:
		return target == trivet.ErrUnauthenticated
	case e.status == http.StatusForbidden:
		return target == trivet.ErrForbidden
	case e.status == http.StatusNotFound:
		return target == trivet.ErrNotFound
	case e.status == http.StatusConflict || e.status == http.StatusPreconditionFailed:
		return target == trivet.ErrConflict
	case e.status >= 500 && e.method != http.MethodGet && e.status != http.StatusServiceUnavailable:
		return target == trivet.ErrUnknown // it may have been partly done
	case e.status == http.StatusTooManyRequests || e.status >= 500:
		return target == trivet.ErrUnavailable
	}
	return target == trivet.ErrInvalid
}

// maxMessage bounds the service's error text that is shown, in bytes.
const maxMessage = 300

// newRedfishError parses the message of DSP0266 §8.6 from the body, if it has one.
func newRedfishError(method string, status int, body []byte) *redfishError {
	type info struct{ Message, Resolution string }
	var e struct {
		Error struct {
			Message string `json:"message"`
			Info    []info `json:"@Message.ExtendedInfo"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) != nil {
		return &redfishError{method: method, status: status}
	}
	message := e.Error.Message
	if len(e.Error.Info) > 0 && e.Error.Info[0].Message != "" {
		message = e.Error.Info[0].Message + " " + e.Error.Info[0].Resolution
	}
	return &redfishError{method: method, status: status, message: printable(message)}
}

// printable returns a BMC's text as one line of bounded length without control characters.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "..."
	}
	return strings.TrimSpace(text)
}

package action

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
)

// phoneHomeScript is the vendor-data: a boot hook that cloud-init runs at every boot. (Its own phone_home has one URL,
// and one attempt at the first boot; a user's phone_home replaces the vendor's.)
//
//go:embed phonehome.py
var phoneHomeScript string

// state names the files that the script reads and writes.
type state struct {
	result string // written by each boot, when its last stage has ended
	done   string // ours, of one instance: it has phoned home
}

var cloudState = state{"/run/cloud-init/result.json", "/var/lib/cloud/instance/trivet-phoned-home"}

// phoneHome returns the vendor-data that makes the installed system phone home; nil if the run has no URLs.
func phoneHome(run *trivet.Run, s state) ([]byte, error) {
	if len(run.PhoneHomes) == 0 {
		return nil, nil
	}
	var head strings.Builder
	for _, v := range []struct {
		name  string
		value any
	}{{"URLS", run.PhoneHomes}, {"RESULT", s.result}, {"DONE", s.done}} {
		text, err := json.Marshal(v.value) // which Python reads as well
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&head, "%s = %s\n", v.name, text)
	}
	return []byte("#cloud-boothook\n" + strings.Replace(phoneHomeScript, "# HERE\n", head.String(), 1)), nil
}

package trivet

import (
	"strconv"
	"strings"
)

// MemberCounts are the members of a provision with spec.count by their states: those that exist. More are created as
// these get machines and end.
type MemberCounts struct {
	Waiting   int `json:"waiting,omitempty"`   // for a machine
	Running   int `json:"running,omitempty"`   // on a machine
	Succeeded int `json:"succeeded,omitempty"` // their system is installed
	Failed    int `json:"failed,omitempty"`    // they use no further machine
}

// Bounds of a provision with spec.count.
const (
	MaxCount = 20_000
	// MaxCountBytes bounds count times the bytes of what each member has of its own: keys, user-data, network-data.
	MaxCountBytes = 256 << 20
)

// Total returns the number of all members that exist.
func (c MemberCounts) Total() int { return c.Waiting + c.Running + c.Succeeded + c.Failed }

// InFlight returns the number of members that have not ended.
func (c MemberCounts) InFlight() int { return c.Waiting + c.Running }

// Waits reports whether a provision waits for a machine that it may claim. One with spec.count has members which do, and
// one that is paused claims none.
func (v *Provision) Waits() bool { return v.Spec.Count == nil && v.Status.Claims() }

// MemberName returns the name of a member of a provision, by its number.
func MemberName(provision string, number int) string { return provision + "-" + strconv.Itoa(number) }

// MemberNumber returns the number of a member of another provision, as its name has it; 0: it is none.
func (v *Provision) MemberNumber() int {
	if v.Status.MemberOf == "" {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(v.Name, v.Status.MemberOf+"-"))
	return n
}

func (v *Provision) validateCount(p *problems) {
	s := &v.Spec
	switch {
	case s.Count == nil:
		if s.MaxInFlight != 0 {
			p.add("spec.maxInFlight", "needs spec.count")
		}
		return
	case *s.Count < 0 || *s.Count > MaxCount:
		p.add("spec.count", "must be from 0 to %d", MaxCount)
		return
	case s.Machine != "":
		p.add("spec.count", "needs spec.selector: a provision that names its machine is one for that machine")
	}
	if s.MaxInFlight < 0 {
		p.add("spec.maxInFlight", "is %d; at least 1, or 0 for any number", s.MaxInFlight)
	}
	if most := MaxName - len(MemberName("", MaxCount)) - len("-99"); len(v.Name) > most {
		p.add("name", "has %d bytes; at most %d with spec.count, as its members have a number after it", len(v.Name),
			most)
	}
	bytes := len(s.UserData) + len(s.NetworkData)
	for _, key := range s.SSHKeys {
		bytes += len(key)
	}
	if *s.Count*bytes > MaxCountBytes {
		p.add("spec.count", "%d members with %d bytes of keys, user-data and network-data each are more than %d MiB; "+
			"let the machines fetch the data, or create several provisions", *s.Count, bytes, MaxCountBytes>>20)
	}
}

package server

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
)

// Whatever a process may open, its callers together leave files for the head itself, and each port has callers.
func TestLimitsLeaveFilesForTheHead(t *testing.T) {
	for _, files := range []uint64{1024, 4096, 20_000, neededFiles - 1, neededFiles, 1 << 20} {
		l := newLimits(files, DefaultPerAddress)
		used := l.api.Known + l.api.Unknown + 2*(l.boot.Known+l.boot.Unknown+l.tftp.Known+l.tftp.Unknown)
		if own := int(files) - used; own < 256 {
			t.Errorf("%d files: %d are left for the head", files, own)
		}
		for _, n := range []int{l.api.Known, l.api.Unknown, l.boot.Known, l.boot.Unknown, l.tftp.Known, l.tftp.Unknown} {
			if n < 8 {
				t.Errorf("%d files: %+v", files, l)
			}
		}
	}
}

// 150 agents behind one address reach another head as soon as theirs is lost, also where some are replaced before they
// are recognised; and again, however often heads are lost.
func TestAgentsBehindOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 150
		limits := newLimits(neededFiles, DefaultPerAddress).api
		limits.Rate = newHandshakes(DefaultPerAddress)
		set, gateway := limit.NewSet(limits), netip.MustParseAddr("10.0.0.1")
		waiting := []*limit.Entry{}
		enter := func() {
			e := set.Enter(gateway, func() { waiting = waiting[1:] })
			if e == nil {
				t.Fatal("an agent is refused")
			}
			waiting = append(waiting, e)
		}
		for range agents {
			enter()
		}
		for replaced := agents - len(waiting); replaced > 0; replaced-- {
			enter()
		}
		for range 20 {
			for _, e := range waiting {
				e.Recognise()
				e.Leave()
			}
			waiting = nil
			for range agents {
				e := set.Enter(gateway, func() {})
				if e == nil {
					t.Fatal("an agent is refused after others were recognised")
				}
				e.Recognise()
				waiting = append(waiting, e)
			}
		}
		if n := set.Stats(); n.Limited > 0 || n.Refused > 0 {
			t.Errorf("%+v", n)
		}
	})
}

// The addresses of heads are those at which their members are reached; a removed head has none.
func TestAddressesOfHeads(t *testing.T) {
	head := func(peer string, state trivet.HeadState) *trivet.Head {
		return &trivet.Head{Status: trivet.HeadStatus{Peer: peer, State: state}}
	}
	all := addressesOf([]*trivet.Head{head("https://10.0.0.1:7480", trivet.HeadMember),
		head("https://[2001:db8::1]:7480", trivet.HeadMember), head("https://head3:7480", trivet.HeadMember),
		head("https://10.0.0.4:7480", trivet.HeadRemoved), head("", trivet.HeadMember)})
	if len(all) != 2 {
		t.Errorf("%v", all)
	}
}

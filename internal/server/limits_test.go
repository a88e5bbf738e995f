package server

import (
	"testing"

	"github.com/trivet-project/trivet"
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

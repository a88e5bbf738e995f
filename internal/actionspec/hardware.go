package actionspec

import (
	"github.com/trivet-project/trivet"
)

// Bounds of the tests of hardware.
const (
	maxPercent  = 90
	maxPasses   = 1000
	maxSamples  = 100_000
	maxTransfer = 64 << 30
	maxLinks    = 64
	maxSpeed    = 10_000_000 // Mbit/s
	maxErrors   = 1_000_000
)

// TestMemory is the arguments of test-memory.
type TestMemory struct {
	Percent   int             `with:"percent"`
	Passes    int             `with:"passes"`
	Time      trivet.Duration `with:"time"`
	Corrected int             `with:"corrected"`
}

func (t *TestMemory) check(p *problems) {
	p.between("percent", t.Percent, 1, maxPercent)
	p.between("passes", t.Passes, 1, maxPasses)
	p.between("corrected", t.Corrected, 0, maxErrors)
	if t.Time > p.timeout/10*9 {
		p.add("time", "is %s; at most nine tenths of the action's timeout, %s", t.Time, p.timeout)
	}
}

// TestDisk is the arguments of test-disk.
type TestDisk struct {
	Disk                        // Path "all" means every writable disk
	Mode        string          `with:"mode"`
	Destructive bool            `with:"destructive"`
	Full        bool            `with:"full"`
	Samples     int             `with:"samples"`
	MinRate     trivet.ByteSize `with:"minRate"`
	MaxLatency  trivet.Duration `with:"maxLatency"`
}

// The modes of a test of a disk.
const (
	TestRead    = "read"    // nothing is written
	TestRewrite = "rewrite" // what was read twice alike is written back, and read again
	TestWrite   = "write"   // patterns are written, and read again: what is on the disk is lost
)

func (t *TestDisk) check(p *problems) {
	t.checkAll(p)
	p.choice("test-disk.mode", t.Mode)
	switch {
	case t.Mode == TestWrite && !t.Destructive:
		p.addAny([]string{"mode", "destructive"},
			"write loses what is on the disk; to permit that, write also: destructive: true")
	case t.Mode != TestWrite && t.Destructive:
		p.addAny([]string{"destructive", "mode"}, "is for mode write only; %s keeps what is on the disk", t.Mode)
	}
	p.between("samples", t.Samples, 1, maxSamples)
	if !t.Full && t.MinRate > 0 {
		p.addAny([]string{"minRate", "full"}, "is of reading from the beginning to the end; write also: full: true")
	}
}

// TestNetwork is the arguments of test-network.
type TestNetwork struct {
	Transfer trivet.ByteSize `with:"transfer"`
	MinRate  trivet.ByteSize `with:"minRate"`
	Links    int             `with:"links"`
	MinSpeed int             `with:"minSpeed"`
	Errors   int             `with:"errors"`
}

func (t *TestNetwork) check(p *problems) {
	if t.Transfer > maxTransfer {
		p.add("transfer", "is %s; at most %s, as all machines share the heads", t.Transfer,
			trivet.ByteSize(maxTransfer))
	}
	p.between("links", t.Links, 0, maxLinks)
	p.between("minSpeed", t.MinSpeed, 0, maxSpeed)
	p.between("errors", t.Errors, 0, maxErrors)
}

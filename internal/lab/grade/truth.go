// Package grade says what is wrong with a simulated site, before anything runs there, and compares what a run shows
// with that. It is pure.
package grade

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/trivet-project/trivet"
)

// Truth is what is wrong with a simulated site.
type Truth struct {
	Seed         uint64      `json:"seed"`
	Alternatives int         `json:"alternatives"` // of each provision
	Machines     []Machine   `json:"machines"`
	Provisions   []Provision `json:"provisions"`
}

// Machine is a machine, and what is wrong with it.
type Machine struct {
	Name  string `json:"name"`
	Rack  int    `json:"rack"` // each has a network of its own
	Pool  Pool   `json:"pool"`
	Fault Fault  `json:"fault,omitzero"`
}

// Pool is a set of machines that provisions select from.
type Pool string

// The pools.
const (
	General Pool = "general"
	// Old machines have a platform of their own, whose kernel does not start.
	Old Pool = "old"
)

// Fault is what is wrong with a machine.
type Fault struct {
	Kind Kind `json:"kind"`
	// Step is where it shows: a boot step or an action.
	Step string `json:"step"`
	// Mode is how.
	Mode Mode `json:"mode,omitempty"`
}

// Mode is how an action, or a BMC, fails.
type Mode string

// The modes.
const (
	Error  Mode = "error"  // the disk is gone, and the action fails with what it gets from the system
	Hang   Mode = "hang"   // the action never ends
	Silent Mode = "silent" // the whole machine stops during the action, silently

	Lies  Mode = "lies"  // the BMC reports what was requested, and does nothing
	Errs  Mode = "errs"  // it responds to each change with an error
	Hangs Mode = "hangs" // it accepts connections and does not respond
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	Dead     Kind = "dead"     // gets no further than a step, ever
	Flaky    Kind = "flaky"    // fails at a step once
	BMC      Kind = "bmc"      // its BMC lies, errs or hangs
	Platform Kind = "platform" // its platform does not start
	Network  Kind = "network"  // its rack has no network
)

// Provision is a provision, and whether its image is bad.
type Provision struct {
	Name     string `json:"name"`
	Pool     Pool   `json:"pool"`
	Template string `json:"template"`
	BadImage bool   `json:"badImage,omitempty"`
}

// The actions of each template, in their order, but the reboot.
const (
	Wipe  = "wipe"
	Image = "image"
	MOTD  = "motd"
	Rest  = "rest"
	Seed  = "seed"
)

// order is the steps of a run, in their order.
var order = []string{trivet.StepPowerOn, trivet.StepDHCP, trivet.StepScript, trivet.StepKernel, trivet.StepHello,
	Wipe, Image, MOTD, Rest, Seed}

const (
	// MinMachines is how many machines a site needs to have each fault, and spare machines.
	MinMachines = 40
	// PerRack is how many machines are in a rack.
	PerRack    = 10
	templates  = 10
	alternates = 3
)

// New returns a site of n machines, at least MinMachines: 15 % are dead from a random step on, 5 % fail once, 3 % have
// a bad BMC, one rack has no network, one pool a platform that does not start, and one template in ten a bad image. A
// fourth of the machines that can be installed are spare. The same seed gives the same site.
func New(n int, seed uint64) *Truth {
	r := rand.New(rand.NewPCG(seed, 0))
	t := &Truth{Seed: seed, Alternatives: alternates}
	old := max(4, n/20)
	dark := r.IntN((n - old) / PerRack) // a whole rack of the general pool
	var sound []int
	for i := range n {
		m := Machine{Name: fmt.Sprintf("demo%04d", i+1), Rack: i / PerRack, Pool: General}
		switch {
		case i >= n-old:
			m.Pool, m.Fault = Old, Fault{Kind: Platform, Step: trivet.StepHello}
		case m.Rack == dark:
			m.Fault = Fault{Kind: Network, Step: trivet.StepDHCP}
		default:
			sound = append(sound, i)
		}
		t.Machines = append(t.Machines, m)
	}
	r.Shuffle(len(sound), func(i, j int) { sound[i], sound[j] = sound[j], sound[i] })
	take := func(percent int, fault func(i int) Fault) {
		for i, at := range sound[:share(n, percent)] {
			t.Machines[at].Fault = fault(i)
		}
		sound = sound[share(n, percent):]
	}
	take(15, func(int) Fault { return breakdown(r, Dead) })
	take(5, func(int) Fault { return breakdown(r, Flaky) })
	take(3, func(i int) Fault {
		return []Fault{{BMC, trivet.StepDHCP, Lies}, {BMC, trivet.StepPowerOn, Errs},
			{BMC, trivet.StepPowerOn, Hangs}}[i%3]
	})
	t.provisions((len(sound)+share(n, 5))*3/4, old)
	return t
}

func share(n, percent int) int { return (n*percent + 99) / 100 }

// breakdown returns a fault at a random step: a boot step after power-on, or an action.
func breakdown(r *rand.Rand, kind Kind) Fault {
	steps := order[1:]
	f := Fault{Kind: kind, Step: steps[r.IntN(len(steps))]}
	if !trivet.IsBootStep(f.Step) {
		modes := []Mode{Hang, Silent}
		if f.Step == Wipe || f.Step == Image {
			modes = append(modes, Error)
		}
		f.Mode = modes[r.IntN(len(modes))]
	}
	return f
}

// provisions adds so many for the general pool, and half as many as there are machines for the old one.
func (t *Truth) provisions(general, old int) {
	for i := range general {
		k := i % templates
		t.Provisions = append(t.Provisions, Provision{Name: fmt.Sprintf("p%04d", i+1), Pool: General,
			Template: fmt.Sprint("t", k), BadImage: k == templates-1})
	}
	for i := range old / 2 {
		t.Provisions = append(t.Provisions, Provision{Name: fmt.Sprintf("old%04d", i+1), Pool: Old, Template: "t0"})
	}
}

// expected returns how a run of the provision on the machine must fail; the type is empty where it must succeed.
func expected(m *Machine, p *Provision) (fault trivet.FailureType, step string) {
	switch m.Fault.Kind {
	case Dead, BMC:
		fault, step = trivet.FaultMachine, m.Fault.Step
	case Platform:
		fault, step = trivet.FaultPlatform, m.Fault.Step
	case Network:
		fault, step = trivet.FaultNetwork, m.Fault.Step
	}
	if p.BadImage && (fault == "" || slices.Index(order, Image) < slices.Index(order, step)) {
		fault, step = trivet.FaultImage, Image
	}
	return fault, step
}

// isSound reports whether a machine must not be in quarantine at the end.
func (m *Machine) isSound() bool { return m.Fault.Kind != Dead && m.Fault.Kind != BMC }

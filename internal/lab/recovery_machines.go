package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/wait"
)

// installing is machines with BMCs that are being installed, each for a provision of its name.
type installing struct {
	client   *client.Client
	ledger   *ledger
	dhcp     atomic.Pointer[[]string] // addresses to which the relay sends
	machines []*poweredMachine
	bmcs     []*bmctest.RedfishServer
}

// poweredMachine is a machine with a BMC.
type poweredMachine struct {
	Supply
	up atomic.Bool // the installed system has started and phoned home
}

// relayTimeout is how long the relay waits for one head, which may not own the machine.
const relayTimeout = 4 * time.Second

// newInstalling starts the BMCs of machines, and creates their records.
func newInstalling(ctx context.Context, d *Demo, c *client.Client, l *ledger) (*installing, error) {
	s := &installing{client: c, ledger: l}
	secret := map[string]string{"user": bmcUser, "password": bmcUser}
	_, err := client.Of[trivet.Secret](c).Create(ctx, &trivet.Secret{Meta: trivet.Meta{Name: "bmc"},
		Spec: trivet.SecretSpec{Data: secret, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
			Insecure: true}})
	for i := 0; i < d.Machines && err == nil; i++ {
		err = s.addMachine(ctx, d, i)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *installing) addMachine(ctx context.Context, d *Demo, i int) error {
	m := &Machine{Name: fmt.Sprintf("demo%04d", i+1), MAC: macOf(i), Dir: d.Dir, Log: d.Log}
	p := &poweredMachine{Supply: Supply{Machine: m}}
	m.Up = func() { p.up.Store(true) }
	m.Lease = func(ctx context.Context) (*dhcp.Lease, error) { return s.lease(ctx, m, i) }
	server, err := bmctest.StartRedfish("127.0.0.1:0", p.Handler(bmcUser, bmcUser))
	if err != nil {
		return err
	}
	s.machines, s.bmcs = append(s.machines, p), append(s.bmcs, server)
	r, err := client.Of[trivet.Machine](s.client).Create(ctx, &trivet.Machine{Meta: trivet.Meta{Name: m.Name},
		Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: m.MAC}},
			BMC: &trivet.BMC{Protocol: "redfish", Address: server.Address, Secret: "bmc"}}})
	if err == nil {
		s.ledger.add(r, 0)
	}
	return err
}

// lease requests an address from the heads that the relay has now.
func (s *installing) lease(ctx context.Context, m *Machine, i int) (lease *dhcp.Lease, err error) {
	all := *s.dhcp.Load()
	for n := range all {
		one, cancel := context.WithTimeout(ctx, relayTimeout)
		lease, err = m.dhcpRequest(one, all[(i+n)%len(all)])
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return lease, err
}

// install creates the provisions of some machines.
func (s *installing) install(ctx context.Context, machines []*poweredMachine) error {
	for _, m := range machines {
		p, err := client.Of[trivet.Provision](s.client).Create(ctx, &trivet.Provision{
			Meta: trivet.Meta{Name: m.Machine.Name},
			Spec: trivet.ProvisionSpec{Template: "demo", Machine: m.Machine.Name}})
		if err != nil {
			return err
		}
		s.ledger.add(p, 0)
	}
	return nil
}

// awaitBusy waits until an action runs on one of the machines.
func (s *installing) awaitBusy(ctx context.Context, machines []*poweredMachine) error {
	for {
		runs, _, err := client.Of[trivet.Workflow](s.client).List(ctx, client.ListOptions{})
		if err != nil {
			return err
		}
		if slices.ContainsFunc(runs, func(w *trivet.Workflow) bool {
			step := w.Status.Current()
			return step != nil && w.Status.State == trivet.WorkflowRunning && !slices.Contains(trivet.BootSteps, step.Name) &&
				slices.ContainsFunc(machines, func(m *poweredMachine) bool { return m.Machine.Name == w.Spec.Machine })
		}) {
			return nil
		}
		if err := wait.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// isUp reports whether the installed system of a machine runs.
func (s *installing) isUp(machine string) bool {
	return slices.ContainsFunc(s.machines, func(m *poweredMachine) bool {
		return m.Machine.Name == machine && m.up.Load()
	})
}

// close powers all machines off.
func (s *installing) close() error {
	var errs []error
	for _, b := range s.bmcs {
		errs = append(errs, b.Stop())
	}
	for _, m := range s.machines {
		m.Close()
	}
	return errors.Join(errs...)
}

package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// The pools of machines: those that the test powers, and those that their BMCs power.
const (
	plainPool   = "sim"
	managedPool = "bmc"
)

const bmcSecret = "bmc"

// isManaged reports whether a machine, or a loop of provisions, is one of the racks with BMCs.
func isManaged(i, racks, managed int) bool { return racks > 0 && i%racks >= racks-managed }

func poolOf(i, racks, managed int) string {
	if isManaged(i, racks, managed) {
		return managedPool
	}
	return plainPool
}

// portOf is the port of a machine's BMC.
func portOf(i, racks int) uint16 { return uint16(bmcPort + i/racks) }

func bmcAddress(i, racks int) string {
	return "http://" + netip.AddrPortFrom(rackAddress(i%racks), portOf(i, racks)).String()
}

func (l *load) prepareSecret(ctx context.Context) error {
	return l.make(ctx, &trivet.Secret{Meta: meta(bmcSecret), Spec: trivet.SecretSpec{Insecure: true,
		Data: map[string]string{"user": bmcUser, "password": bmcPassword}, Addresses: []netip.Prefix{subnet}}})
}

// startBMCs starts the BMCs of the racks that have them.
func (l *load) startBMCs() {
	for i := range len(l.racks) * l.perRack {
		if isManaged(i, len(l.racks), l.managed) {
			l.racks[i%len(l.racks)].send("bmc", machineName(i), machineMAC(1, i), fmt.Sprint(portOf(i, len(l.racks))))
			l.history.note(func(h *History) { h.Managed = append(h.Managed, machineName(i)) })
		}
	}
}

// hasBMC reports whether a machine has a BMC.
func (l *load) hasBMC(machine string) (has bool) {
	l.history.note(func(h *History) { has = slices.Contains(h.Managed, machine) })
	return has
}

// bmcs sets how all BMCs answer.
func (l *load) bmcs(mode bmcMode) {
	for _, r := range l.racks[len(l.racks)-l.managed:] {
		r.send("mode", string(mode))
	}
}

// converge waits until no machine has a power intent. One that remains is seen in the history.
func (l *load) converge(ctx context.Context) {
	_ = testhead.Eventually(ctx, func() error {
		list, _, err := client.Of[trivet.Machine](l.sdk).List(ctx, client.ListOptions{Labels: "pool=" + managedPool})
		for _, m := range list {
			if m.Status.Intent != nil {
				err = errors.New(m.Name + " has an intent")
			}
		}
		return err
	})
}

// gatherBMC reads what the BMCs of a rack received and did.
func (h *History) gatherBMC(r *rack) error {
	f, err := os.Open(bmcLog(r.dir, r.address))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		h.Commands = append(h.Commands, c)
	}
	return nil
}

// prepareBystanders creates machines that only have a record.
func (l *load) prepareBystanders(ctx context.Context, n int) error {
	const atOnce = 16
	failed := make(chan error, atOnce)
	for worker := range atOnce {
		go func() {
			var err error
			for i := worker; i < n && err == nil; i += atOnce {
				err = l.make(ctx, &trivet.Machine{Meta: meta(fmt.Sprintf("idle%06d", i)),
					Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: machineMAC(0x40+i>>16, i&0xffff)}}}})
			}
			failed <- err
		}()
	}
	var errs []error
	for range atOnce {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// The scenario "recovery": heads are lost in each way that docs/recovery.md and docs/heads.md have a page for, or their
// keys or their program are replaced, while machines are being installed and clients write, and the operator does what
// that page says.

// recoveryCase is one way to lose heads.
type recoveryCase struct {
	name, what string
	// during is called while clients write, before others do.
	during func(*recoverySite, context.Context) error
	// lose kills heads, and removes disks; nil: no head is lost.
	lose func(*recoverySite) error
	// repair does what the operator does then.
	repair func(*recoverySite, context.Context) error
	// standby: there are two heads, of which the second one is a standby. Else there are three.
	standby bool
	// writesGoOn: clients write until the end. Else they end with the heads.
	writesGoOn bool
}

var recoveryCases = []recoveryCase{
	{name: "head-replaced", what: "one of three heads is lost, with its disk, and replaced",
		lose: (*recoverySite).loseOne, repair: (*recoverySite).replace, writesGoOn: true},
	{name: "quorum-lost", what: "two of three heads are lost; the third one goes on",
		lose: (*recoverySite).loseTwo, repair: (*recoverySite).fromSurvivor},
	{name: "only-a-disk", what: "all heads are lost; one disk is left, with a torn end of its log",
		lose: (*recoverySite).loseAllButADisk, repair: (*recoverySite).fromDisk},
	{name: "only-a-backup", what: "all heads are lost, with their disks; a backup is left",
		during: (*recoverySite).backUp, lose: (*recoverySite).loseAll, repair: (*recoverySite).fromBackup},
	{name: "cold-start", what: "all heads are killed, and started in another order",
		lose: (*recoverySite).killAll, repair: (*recoverySite).startAll, writesGoOn: true},
	{name: "standby", what: "of a head and a standby, the head is lost, with its disk", standby: true,
		lose: (*recoverySite).loseFirst, repair: (*recoverySite).fromSurvivor},
	{name: "rotated", what: "a head may have been read: the CA and all keys are replaced",
		repair: (*recoverySite).rotate, writesGoOn: true},
	{name: "upgraded", what: "the program of all heads is replaced",
		repair: (*recoverySite).upgrade, writesGoOn: true},
}

// RecoveryCase is the outcome of one way to lose heads. Its JSON is an element of the array of the demo.
type RecoveryCase struct {
	Case    string  `json:"case"`
	Seconds float64 `json:"seconds"` // from the kill, or the command, until all was well
	// RecordsWritten are the writes that were acknowledged, RecordsLost those of them that are missing afterwards, and
	// RecordsLostOutsidePlan those that the plan of the recovery did not give up, or for which there was none.
	RecordsWritten         int `json:"recordsWritten"`
	RecordsLost            int `json:"recordsLost"`
	RecordsLostOutsidePlan int `json:"recordsLostOutsidePlan"`
	// BlobsLostOutsidePlan are the blobs that records refer to, without a good copy, and that the plan did not name.
	BlobsLostOutsidePlan int `json:"blobsLostOutsidePlan"`
	// Blessed: all invariants of trivet status hold, and all provisions ended as was decided; else Problems says why
	// not.
	Blessed  bool     `json:"blessed"`
	Problems []string `json:"problems,omitempty"`
}

// Failed reports whether more was lost than may be, or all is not well again.
func (c *RecoveryCase) Failed() bool {
	return !c.Blessed || c.RecordsLostOutsidePlan > 0 || c.BlobsLostOutsidePlan > 0
}

// checkRecovery refuses options that contradict the scenario "recovery".
func (d *Demo) checkRecovery() error {
	const heads, machines = 3, 100
	switch {
	case d.Heads != heads:
		return &trivet.FieldError{Field: "--heads",
			Problem: fmt.Sprintf("is %d; scenario recovery has %d heads", d.Heads, heads)}
	case d.Kill:
		return &trivet.FieldError{Field: "--kill", Problem: "scenario recovery decides by itself which heads are killed"}
	case d.Machines < 2 || d.Machines > machines:
		return &trivet.FieldError{Field: "--machines",
			Problem: fmt.Sprintf("is %d; scenario recovery requires 2 to %d", d.Machines, machines)}
	case d.History != "":
		return &trivet.FieldError{Field: "--history", Problem: "scenario recovery writes no history"}
	}
	for _, name := range d.Cases {
		if !slices.Contains(RecoveryCases(), name) {
			return &trivet.FieldError{Field: "--case", Problem: fmt.Sprintf("has %q; the cases are %s", name,
				strings.Join(RecoveryCases(), ", "))}
		}
	}
	return nil
}

// RecoveryCases returns the names of the cases of the scenario "recovery", in their order.
func RecoveryCases() (names []string) {
	for _, c := range recoveryCases {
		names = append(names, c.name)
	}
	return names
}

// Recover runs the scenario "recovery" and returns the outcome of each case.
func (d *Demo) Recover(ctx context.Context) (all []RecoveryCase, err error) {
	done, err := d.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	for _, c := range recoveryCases {
		if d.Cases != nil && !slices.Contains(d.Cases, c.name) {
			continue
		}
		d.status("%s: %s", c.name, c.what)
		outcome, err := d.recoverCase(ctx, &c)
		if err != nil {
			return all, fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, outcome)
	}
	return all, nil
}

func (d *Demo) recoverCase(ctx context.Context, c *recoveryCase) (r RecoveryCase, err error) {
	s, err := newRecoverySite(ctx, d, c)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.begin(ctx, c.during); err != nil {
		return r, err
	}
	began := time.Now()
	if c.lose != nil {
		if err := c.lose(s); err != nil {
			return r, err
		}
	}
	if !c.writesGoOn {
		if err := s.endLoad(); err != nil {
			return r, err
		}
	}
	if err := c.repair(s, ctx); err != nil {
		return r, err
	}
	r = RecoveryCase{Case: c.name, Problems: s.awaitBlessed(ctx)}
	r.Seconds = float64(time.Since(began).Round(time.Millisecond)) / float64(time.Second)
	if len(r.Problems) == 0 {
		s.status("all is well after %.1f s", r.Seconds)
	}
	return r, s.account(ctx, &r)
}

// account adds what was lost, and how the provisions ended.
func (s *recoverySite) account(ctx context.Context, r *RecoveryCase) error {
	if err := s.endLoad(); err != nil {
		return err
	}
	ended, err := s.finish(ctx)
	if err != nil {
		return err
	}
	r.Problems = append(r.Problems, ended...)
	left, err := s.left(ctx)
	if err != nil {
		return err
	}
	if s.plan == nil {
		if err := s.checkNothingLost(ctx, r); err != nil {
			return err
		}
	}
	writes := s.ledger.writes()
	r.RecordsWritten = len(writes)
	r.RecordsLost, r.RecordsLostOutsidePlan = countLost(writes, left, boundOf(s.plan))
	r.BlobsLostOutsidePlan = blobsOutside(s.copies, s.plan)
	r.Blessed = len(r.Problems) == 0
	return nil
}

// checkNothingLost checks what else must hold where nothing may be lost.
func (s *recoverySite) checkNothingLost(ctx context.Context, r *RecoveryCase) error {
	var names []string
	for _, m := range s.machines.machines {
		names = append(names, m.Machine.Name)
	}
	n, err := repeated(s.demo.Dir, names, nil)
	if n > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("%d acknowledged actions ran more than once", n))
	}
	return errors.Join(err, s.operator.read(ctx, &s.copies, "blob", "check"))
}

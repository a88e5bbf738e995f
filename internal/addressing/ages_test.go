package addressing

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet"
)

// A lease ends when this head has counted its time, and a while. Each write begins again; a head that starts later
// counts from its start, and knows that the lease may be older.
func TestAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &trivet.Address{Meta: trivet.Meta{Name: "10.0.0.1", Revision: 5},
			Status: trivet.AddressStatus{Lasts: trivet.Duration(20 * time.Minute)}}
		first := &Leases{ages: newAges()}
		if left, exact := first.ages.left(record); left != 20*time.Minute || exact {
			t.Errorf("not observed: %s, %v", left, exact)
		}
		first.ages.note(record, true)
		time.Sleep(15 * time.Minute)
		first.ages.note(record, false) // listed again
		second := &Leases{ages: newAges()}
		second.ages.note(record, false)
		if left, exact := first.ages.left(record); left != 5*time.Minute || !exact {
			t.Errorf("after 15 minutes: %s, %v", left, exact)
		}
		time.Sleep(6 * time.Minute)
		if !first.Expired(record) || second.Expired(record) {
			t.Error("after 21 minutes: the head that observed the write must end the lease, the other one not yet")
		}
		if _, exact := second.ages.left(record); exact {
			t.Error("the age at a head that started later is not exact")
		}
		record.Revision++
		if first.Expired(record) {
			t.Error("a write that was not observed yet ended the lease")
		}
		first.ages.note(record, true)
		if left, _ := first.ages.left(record); left != 20*time.Minute {
			t.Errorf("after a write: %s", left)
		}
	})
}

package program

import (
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
)

// Other is another member of the cluster, as a head sees it that is to start again.
type Other struct {
	Name string
	// Responds: it responds, has caught up and knows a leader. Stable: and did so for a while since its start.
	Responds, Stable bool
}

// MayStart returns why a head must not start again in a phase of an upgrade, beside these others; empty: it may. While
// programs are replaced all others must be well. Heads that go back may do so without those that do not respond, as
// long as the rest is a quorum.
func MayStart(phase trivet.UpgradePhase, others []Other) string {
	var down []string
	for _, o := range others {
		switch {
		case o.Stable:
		case o.Responds || phase == trivet.UpgradeSwitching:
			return fmt.Sprintf("waits until %s has responded, with a quorum, for a while", o.Name)
		default:
			down = append(down, o.Name)
		}
	}
	if all := len(others) + 1; len(down) > 0 && len(others)-len(down) < all/2+1 {
		return fmt.Sprintf("waits for %s: without another head there is no quorum", strings.Join(down, ", "))
	}
	return ""
}

package trivet

// ReleaseMode is what becomes of the disks of a machine that is released. Whatever it is, the machine is first
// stopped: its former system does not run any more when the release has ended.
type ReleaseMode string

// The modes of a release.
const (
	// ReleaseWipe erases every disk and verifies that. It is what trivet release does.
	ReleaseWipe ReleaseMode = "wipe"
	// ReleaseNoWipe leaves the disks as they are; the next provision of any selector may overwrite them. It is what the
	// deletion of a provision does, unless the site says otherwise.
	ReleaseNoWipe ReleaseMode = "no-wipe"
	// ReleaseKeepData leaves the disks as they are, and only a provision that names the machine may use it (see
	// [MachineStatus.HoldsData]).
	ReleaseKeepData ReleaseMode = "keep-data"
	// ReleaseCheck leaves the disks as they are and tests the hardware: memory, samples of each disk, network. A machine
	// in quarantine leaves it where nothing was found; an available one is quarantined where something was.
	ReleaseCheck ReleaseMode = "check"
	// ReleaseCheckAll is ReleaseCheck, with every byte of each disk.
	ReleaseCheckAll ReleaseMode = "check-all"
)

// ReleaseModes are all modes.
var ReleaseModes = []ReleaseMode{ReleaseWipe, ReleaseNoWipe, ReleaseKeepData, ReleaseCheck, ReleaseCheckAll}

// IsCheck reports whether the hardware is tested.
func (m ReleaseMode) IsCheck() bool { return m == ReleaseCheck || m == ReleaseCheckAll }

// SinceRelease is the release that added the modes. Before all heads have it, a machine is released as ReleaseNoWipe
// does, without a run.
const SinceRelease Release = "0.3.1"

// ReleaseRequest releases a machine, by a run that stops it and does what the mode says.
type ReleaseRequest struct {
	// Mode is "wipe", "no-wipe", "keep-data", "check" or "check-all"; empty: "wipe".
	Mode ReleaseMode `json:"mode,omitempty"`
	// Provision is the provision that the machine serves as the caller knows it, "NAME" or "PROJECT/NAME", which is
	// deleted; empty: none. A machine that serves another one is not released.
	Provision string `json:"provision,omitempty"`
}

// Validate checks the request by itself.
func (r *ReleaseRequest) Validate() error {
	var p problems
	p.oneOf("mode", string(r.Mode), "", string(ReleaseWipe), string(ReleaseNoWipe), string(ReleaseKeepData),
		string(ReleaseCheck), string(ReleaseCheckAll))
	return p.err()
}

package trivet

import "time"

// RedeployRequest installs the machine that serves a provision again, with the same configuration.
type RedeployRequest struct {
	Reason string `json:"reason,omitempty"` // for people
	// Plan is that of the RedeployPlan which the caller has seen: the request fails where what would be installed has
	// changed since. Empty: it is not compared.
	Plan string `json:"plan,omitempty"`
}

// MaxRedeployReason bounds the reason of a RedeployRequest, in bytes.
const MaxRedeployReason = 256

// RedeployPlan is what a RedeployRequest would do now. What may be secret in it is hidden.
type RedeployPlan struct {
	Project   string `json:"project"`           // of the provision
	Provision string `json:"provision"`         // its name in its project
	Machine   string `json:"machine"`           // the one that serves it, which is installed again
	Address   string `json:"address,omitempty"` // of its boot port, which it keeps
	Template  string `json:"template"`          // that is installed
	// Run is the run that has installed what the machine runs now. Its record may be gone: then Installed is zero.
	Run       string    `json:"run"`
	Installed time.Time `json:"installed,omitzero"` // when Run succeeded
	// Changes are what differs from Run; none where its record is gone.
	Changes []RunChange `json:"changes"`
	Plan    string      `json:"plan"` // identifies what would be installed, for RedeployRequest
}

// RunChange is a difference between two runs.
type RunChange struct {
	Field string `json:"field"`         // such as "images.debian-12", or "actions.hello.with.script"
	Was   string `json:"was,omitempty"` // empty: it was not set
	Now   string `json:"now,omitempty"` // empty: it is not set
}

package trivet

import "time"

// ServerName is in every certificate of a head's API. A client that pins the CA verifies this name instead of the
// address that it dialled, so heads may change their addresses, and a certificate of the CA for any other use is not
// a head's. (The top-level domain .internal is reserved for private use.)
const ServerName = "head.trivet.internal"

// Whoami is the owner of an API token.
type Whoami struct {
	Account string    `json:"account"`          // that the token is of
	Role    string    `json:"role"`             // of the account
	Token   string    `json:"token"`            // its public part
	Expires time.Time `json:"expires,omitzero"` // when the token ceases to be valid; zero: never
}

// TokenRequest asks for an API token of an account.
type TokenRequest struct {
	Account string    `json:"account"`          // that the token is of
	Expires time.Time `json:"expires,omitzero"` // zero: after the site's tokenLifetime
	Never   bool      `json:"never,omitempty"`  // it does not expire
}

// TokenResponse is the only response that holds the token itself.
type TokenResponse struct {
	Name    string    `json:"name"`             // of the Token record
	Token   string    `json:"token"`            // it is shown once
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

// JoinTokenRequest asks for a token that lets one head join the cluster.
type JoinTokenRequest struct {
	Role     string   `json:"role,omitempty"`     // "voter", "standby" or "witness"; with Replace, the old head's
	Lifetime Duration `json:"lifetime,omitempty"` // how long the token is valid; 0: an hour
	// Replace is the head that is removed when the new one joins.
	Replace string `json:"replace,omitempty"`
}

// HeadSettings is what people set of a head. It replaces what was set before.
type HeadSettings struct {
	// Revision is that of the record that was read: a later one is not replaced.
	Revision int64     `json:"revision"`
	BMC      *BMC      `json:"bmc,omitempty"`      // [HeadSpec.BMC]; nil: none
	Takeover *Takeover `json:"takeover,omitempty"` // [HeadSpec.Takeover]; nil: none
}

// JoinTokenResponse is the only response that holds the join token itself.
type JoinTokenResponse struct {
	Token   string    `json:"token"`   // it is shown once
	Expires time.Time `json:"expires"` // when it ceases to be valid
}

package trivet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Secret is a set of sealed values, such as a BMC's user and password. Values are sealed before they are stored, and
// never returned.
type Secret struct {
	Meta
	Spec SecretSpec `json:"spec"`
}

// SecretSpec holds the values by key; each is "sealed:v1:..." once it is stored.
type SecretSpec struct {
	Data map[string]string `json:"data"` // values by key
	// Addresses are the subnets, such as "10.0.8.0/24", of the hosts that the values may be sent to; empty means none.
	// A machine's record can name any secret and any address, so this list decides.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// Insecure permits sending the values to a host whose certificate cannot be verified, or without TLS. Factory
	// certificates of BMCs cannot be verified; a host in between can then read the values.
	Insecure bool `json:"insecure,omitempty"`
}

// SecretHostKey is the key of a BMC's secret for the host keys of its SSH service, which has the serial console: lines
// such as "ssh-ed25519 AAAA...". Without it, and without Insecure, no console is opened by SSH.
const SecretHostKey = "sshHostKey"

// Allows reports whether the values may be sent to an address.
func (s *SecretSpec) Allows(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(s.Addresses, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Sealed is the prefix of every sealed value.
const Sealed = "sealed:"

// Token is an API token of an account, or a join token of a head. Its name is the public part; only a hash of the
// secret part is stored.
type Token struct {
	Meta
	Spec TokenSpec `json:"spec"`
}

// HeadLabel is the label of the token of a head's own credential, in its data directory. Its value is the head.
const HeadLabel = "head"

// TokenSpec is the account of a token and its expiry.
type TokenSpec struct {
	Account string `json:"account,omitempty"` // the account that it authenticates
	// AccountUID is the account's: the token is not of a later one of that name.
	AccountUID string    `json:"accountUID,omitempty"`
	Hash       string    `json:"hash"`             // SHA-256 of the secret part
	Expires    time.Time `json:"expires,omitzero"` // zero: never
	// Join is the role of the one head that may join by the token, which has no account then; Used is the ID of the
	// request that used it.
	Join string `json:"join,omitempty"`
	Used string `json:"used,omitempty"` // ID of the join request that it was spent on
	// Replace is the head that is removed when a head joins by the token.
	Replace string `json:"replace,omitempty"`
}

// Account is a person or program that uses the API.
type Account struct {
	Meta
	Spec AccountSpec `json:"spec"`
}

// AccountSpec is the account's role.
type AccountSpec struct {
	Role AccountRole `json:"role"`
}

// AccountRole is what an account may do. Each role includes the ones before it.
type AccountRole string

// The roles of accounts.
const (
	AccountViewer   AccountRole = "viewer"   // reads everything but the values of secrets
	AccountOperator AccountRole = "operator" // writes machines and what runs on them
	AccountAdmin    AccountRole = "admin"    // everything
)

// AccountRoles are all roles of accounts, in ascending order.
var AccountRoles = []AccountRole{AccountViewer, AccountOperator, AccountAdmin}

// Includes reports whether an account of role r may do what role other may. An unknown role may do nothing.
func (r AccountRole) Includes(other AccountRole) bool {
	own, needed := slices.Index(AccountRoles, r), slices.Index(AccountRoles, other)
	return own >= 0 && needed >= 0 && own >= needed
}

// Validate checks a secret by itself.
func (s *Secret) Validate() error {
	var p problems
	p.name(s.Name)
	p.max("spec.data", len(s.Spec.Data), 32)
	p.max("spec.addresses", len(s.Spec.Addresses), 256)
	for i, a := range s.Spec.Addresses {
		if field := fmt.Sprintf("spec.addresses[%d]", i); !a.IsValid() {
			p.add(field, "is not a subnet; write 10.0.8.0/24, or 10.0.8.9/32 for one host")
		} else if a != a.Masked() {
			p.add(field, "%s has bits set after its prefix; write %s", a, a.Masked())
		}
	}
	for key, value := range s.Spec.Data {
		if !wordForm.MatchString(key) {
			p.add(fmt.Sprintf("spec.data[%q]", key), "is not a valid key: use letters, digits, - and _")
		}
		if len(value) > 16<<10 || (!strings.HasPrefix(value, Sealed) && len(value) > 8<<10) {
			p.add("spec.data."+key, "is too long; at most 8 KiB")
		}
	}
	return p.err()
}

// Validate checks a token by itself.
func (t *Token) Validate() error {
	var p problems
	p.name(t.Name)
	if t.Spec.Join == "" {
		p.need("spec.account", t.Spec.Account)
	}
	p.oneOf("spec.join", t.Spec.Join, "", RoleVoter, RoleStandby, RoleWitness)
	p.need("spec.hash", t.Spec.Hash)
	return p.err()
}

// Validate checks an account by itself.
func (a *Account) Validate() error {
	var p problems
	p.name(a.Name)
	p.oneOf("spec.role", string(a.Spec.Role), "admin", "operator", "viewer")
	return p.err()
}

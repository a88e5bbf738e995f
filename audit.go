package trivet

import "time"

// Audit is an entry of the audit log: what an account did by one request, or was refused. It is written in the
// transaction of the change, so that there is neither a change without an entry nor an entry without its change. Entries
// are not records: they are history, which is read by time, and deleted when it is old.
type Audit struct {
	ID      string    `json:"id"`                // its place in the log: newer entries have lesser IDs
	Time    time.Time `json:"time"`              // by the clock of Head
	Head    string    `json:"head"`              // the head that served the request
	Account string    `json:"account"`           // who
	Token   string    `json:"token"`             // the name of the token that was used
	From    string    `json:"from"`              // the address of the client, or of the load balancer before it
	Request string    `json:"request"`           // ID of the request, as in the head's log
	Action  string    `json:"action"`            // such as create, update, delete, read, accept, issue
	Kind    Kind      `json:"kind,omitempty"`    // of the record that the request is about
	Project string    `json:"project,omitempty"` // that the record belongs to
	Name    string    `json:"name,omitempty"`    // of the record
	UID     string    `json:"uid,omitempty"`     // of the record
	Fields  []string  `json:"fields,omitempty"`  // those that were changed, without their values
	Also    []string  `json:"also,omitempty"`    // other records that the request changed, as kind/[project/]name
	Result  string    `json:"result"`            // ok, or the code of the error
	Error   string    `json:"error,omitempty"`   // why it was refused
	Omitted int       `json:"omitted,omitempty"` // refused requests, or reads, since the last one that was recorded
}

// AuditOK is the result of a request that was not refused.
const AuditOK = "ok"

// AuditList is a page of the audit log, the newest entry first.
type AuditList struct {
	Items []Audit `json:"items"`
	// Continue is the position of the next page; empty at the end. A page may be empty and not the last: a head reads a
	// limited number of entries at once.
	Continue string `json:"continue,omitempty"`
}

package trivet

// Cluster is the state of the control plane as one head sees it.
type Cluster struct {
	ID       string     `json:"id"`       // of the cluster, random, constant
	Head     string     `json:"head"`     // the head that responded
	Quorum   bool       `json:"quorum"`   // it is connected to a leader
	Revision int64      `json:"revision"` // of the store, at the head that responded
	Heads    []HeadView `json:"heads"`
}

// HeadView is the state of one head in a [Cluster].
type HeadView struct {
	Name  string `json:"name"`  // of its Head record
	Role  string `json:"role"`  // "voter", "standby" or "witness"
	State string `json:"state"` // leader, member, joining, down, removing, removed
	// LastHeard is the time since the last message of this head; 0 for the head that responded, nil if there was none
	// since that one started.
	LastHeard *Duration `json:"lastHeard,omitempty"`
	Version   string    `json:"version,omitempty"` // of its program
	API       []string  `json:"api,omitempty"`     // URLs of its API
	Peer      string    `json:"peer,omitempty"`    // the address that other heads use
	Problem   string    `json:"problem,omitempty"` // what is wrong, or pending
}

package trivet

// RenderRequest asks for the run that a provision would start, which is neither stored nor started.
type RenderRequest struct {
	// Provision is that provision. It names its machine.
	Provision Provision `json:"provision"`
	// Template is used as if it had been applied before; nil: the stored one is used.
	Template *Template `json:"template,omitempty"`
}

// Rendered is the run that a provision would start. What may be secret in it is hidden.
type Rendered struct {
	Workflow Workflow `json:"workflow"`
	// Waits is why the provision would wait now: for the state of its machine, or for an address. It is empty also where
	// only the claim would show that: other provisions may come before.
	Waits string `json:"waits,omitempty"`
	// Address is the one of the machine's boot port then, where it is known.
	Address string `json:"address,omitempty"`
	// Plan identifies what would be installed on a machine that becomes a head, for spec.head of the provision.
	Plan string `json:"plan,omitempty"`
}

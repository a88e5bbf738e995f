// Package notify sends messages about events out of the site: by a webhook or by e-mail. It knows protocols and no
// records of the store: who is notified of what, and how often it is tried, is decided by internal/controller/notify.
package notify

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// Message is an event as receivers get it. Its JSON is a CloudEvent 1.0 in structured mode:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
type Message struct {
	SpecVersion string    `json:"specversion"`
	ID          string    `json:"id"` // the same whenever the event is sent
	Source      string    `json:"source"`
	Type        string    `json:"type"`
	Subject     string    `json:"subject"`
	Time        time.Time `json:"time"`
	ContentType string    `json:"datacontenttype"`
	Data        Data      `json:"data"`
}

// Data is what is known of an event when it is sent. The state of machine and provision is the present one.
type Data struct {
	Reason    string     `json:"reason"`
	Message   string     `json:"message"`
	Warning   bool       `json:"warning,omitempty"`
	Step      string     `json:"step,omitempty"`
	Workflow  string     `json:"workflow,omitempty"`
	Head      string     `json:"head,omitempty"` // that wrote the event
	Hint      string     `json:"hint,omitempty"` // a command that shows more
	Machine   *Machine   `json:"machine,omitempty"`
	Provision *Provision `json:"provision,omitempty"`
}

// Machine is a machine of a message.
type Machine struct {
	Name      string   `json:"name"`
	State     string   `json:"state,omitempty"`
	Rack      string   `json:"rack,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	BMC       string   `json:"bmc,omitempty"` // its address, where the machine's console is
}

// Provision is the provision that a run belongs to. Failed are the machines that it used before, the oldest first.
type Provision struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`
	Machine *Machine  `json:"machine,omitempty"` // that it has now
	Failed  []Machine `json:"failed,omitempty"`
}

// typePrefix is what the types of messages begin with; the reason follows.
const typePrefix = "io.github.trivet-project."

// New returns a message with an ID. cluster is the ID of the cluster.
func New(id, cluster, subject string, at time.Time, data Data) Message {
	return Message{SpecVersion: "1.0", ID: id, Source: "/trivet/" + cluster, Type: typePrefix + data.Reason,
		Subject: subject, Time: at.UTC(), ContentType: "application/json", Data: data}
}

// NewTest returns a message that is of no event.
func NewTest(cluster string, n *trivet.Notifier, head string) Message {
	return New("test-"+strings.ToLower(rand.Text()), cluster, "notifier/"+n.Name, time.Now(), Data{Reason: "Test",
		Message: "this is a test of notifier " + n.Name + "; no action is needed", Head: head})
}

func (m *Message) body() ([]byte, error) { return json.Marshal(m) }

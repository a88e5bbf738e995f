package trivet

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Notifier sends events to people or programs outside of the site, by a webhook or by e-mail: at least once each, in
// their order.
type Notifier struct {
	Meta
	Spec   NotifierSpec   `json:"spec"`
	Status NotifierStatus `json:"status,omitzero"`
}

// NotifierSpec is which events are sent, and where to.
type NotifierSpec struct {
	// Events are the reasons of the events that are sent; empty: those of failures, switches to another machine,
	// quarantines and recoveries.
	Events []string `json:"events,omitempty"`
	// Webhook is the receiver of HTTP requests; a notifier has this or mail.
	Webhook *Webhook `json:"webhook,omitempty"`
	// Mail is the receivers of e-mail.
	Mail *Mail `json:"mail,omitempty"`
}

// Webhook is an HTTP server that events are sent to.
type Webhook struct {
	// URL is http or https. All who may read records can read it.
	URL string `json:"url"`
	// Secret is the secret whose value "key" signs the requests: "NAME" or "PROJECT/NAME".
	Secret string `json:"secret"`
	// CA has the certificates, in PEM, that the server's is verified by; empty: those that the host of the head trusts.
	CA string `json:"ca,omitempty"`
}

// Mail is people who get e-mail, and the server that accepts it.
type Mail struct {
	// Server is the mail server: "HOST" or "HOST:PORT"; the port is 587 by default. At port 465 TLS comes first, at others
	// STARTTLS is required.
	Server string   `json:"server"`
	From   string   `json:"from"` // "trivet@example.com"
	To     []string `json:"to"`   // at most 16
	// Secret is the secret with the values "user" and "password" for the server, which its spec.addresses must allow;
	// empty: no login.
	Secret string `json:"secret,omitempty"`
	// CA has the certificates, in PEM, that the server's is verified by; empty: those that the host of the head trusts.
	CA string `json:"ca,omitempty"`
	// Insecure permits a server without TLS, or whose certificate cannot be verified; not with a secret.
	Insecure bool `json:"insecure,omitempty"`
}

// HostPort returns the host and the port of the server.
func (m *Mail) HostPort() (host, port string) {
	host, port = m.Server, "587"
	if i := strings.LastIndexByte(m.Server, ':'); i >= 0 && !strings.HasSuffix(m.Server, "]") &&
		(m.Server[0] == '[' || strings.Count(m.Server, ":") == 1) {
		host, port = m.Server[:i], m.Server[i+1:]
	}
	return strings.Trim(host, "[]"), port
}

// WebhookKey and WebhookOldKey are the values of a webhook's secret: the key of the signatures, and one that the
// receiver may still use. Each is "whsec_" and base64 of 24 to 64 bytes.
const (
	WebhookKey    = "key"
	WebhookOldKey = "oldKey"
)

// Bounds of notifiers.
const (
	// MaxNotifiers bounds the notifiers of a site: each event is compared with the filter of each.
	MaxNotifiers = 16
	// MaxPending bounds the events of one notifier that wait for delivery. Beyond, the oldest are dropped.
	MaxPending = 1000
	// maxNotifierName leaves room for the names of the notifier's events.
	maxNotifierName = 63
)

// NotifierState is the state of the deliveries of a notifier.
type NotifierState string

// The states of a notifier.
const (
	NotifierActive   NotifierState = "active"   // the last delivery succeeded, or there was none
	NotifierFailing  NotifierState = "failing"  // the last delivery failed; it is tried again
	NotifierDisabled NotifierState = "disabled" // the receiver wants no more; a change of the spec enables it again
)

// NotifierStatus is the progress of the deliveries.
type NotifierStatus struct {
	State  NotifierState `json:"state,omitempty"`
	Reason string        `json:"reason,omitempty"` // why it is failing or disabled, and what to do next
	// Generation is the spec's that the state is of.
	Generation int64 `json:"generation,omitempty"`
	// Head is the head that delivers.
	Head string `json:"head,omitempty"`
	// Cursor is the revision of the store up to which events are delivered, pending or not wanted.
	Cursor int64 `json:"cursor,omitempty"`
	// Pending are the events that wait for delivery, the oldest first: "NAME@REVISION" of the event.
	Pending   []string  `json:"pending,omitempty"`
	Delivered int64     `json:"delivered,omitempty"` // events that the receiver acknowledged
	Dropped   int64     `json:"dropped,omitempty"`   // events that will not be delivered
	Failures  int       `json:"failures,omitempty"`  // attempts that failed since the last success
	Last      time.Time `json:"last,omitzero"`       // the last success
	Next      time.Time `json:"next,omitzero"`       // about when the next attempt after a failure is
	Events    int64     `json:"events,omitempty"`    // counts the events of this record
}

// NotifierTest is the outcome of a test.
type NotifierTest struct {
	ID        string   `json:"id"`              // of the event that was sent
	Delivered bool     `json:"delivered"`       // the receiver acknowledged it
	Error     string   `json:"error,omitempty"` // why not, and what to do next
	Head      string   `json:"head"`            // that sent it
	Took      Duration `json:"took"`            // how long it took
}

// DefaultNotifications are the reasons of the events that a notifier sends whose spec names none. Of the runs that
// succeed only those are sent whose provision had another machine before.
var DefaultNotifications = []string{
	ReasonFailed, ReasonPowerFailed, ReasonAgentLost, ReasonHelloRefused, ReasonForeignDHCP, ReasonStoreFilling,
	ReasonStoreFull, ReasonNotifierFailing, ReasonNotifierDisabled, ReasonNotificationsDropped, ReasonBackupFailing,
	ReasonBucketFailing,
	ReasonSwitched,
	ReasonReplaced,
	ReasonQuarantined,
	ReasonSucceeded, ReasonAgentReturned, ReasonAccepted, ReasonStoreNormal, ReasonNotifierRecovered,
	ReasonBackupRecovered, ReasonBucketRecovered,
}

// Validate checks a notifier by itself.
func (n *Notifier) Validate() error {
	var p problems
	p.name(n.Name)
	p.bytes("name", n.Name, maxNotifierName)
	p.max("spec.events", len(n.Spec.Events), 64)
	for i, reason := range n.Spec.Events {
		p.bytes(fmt.Sprintf("spec.events[%d]", i), reason, 64)
	}
	switch w, m := n.Spec.Webhook, n.Spec.Mail; {
	case w != nil && m != nil:
		p.add("spec.mail", "excludes spec.webhook: use a notifier for each")
	case w != nil:
		w.validate(&p)
	case m != nil:
		m.validate(&p)
	default:
		p.add("spec.webhook", "is missing, and spec.mail, too: where are the events sent to?")
	}
	return p.err()
}

// Secret returns the name of the secret that the notifier uses; empty: none.
func (n *Notifier) Secret() string {
	switch {
	case n.Spec.Webhook != nil:
		return n.Spec.Webhook.Secret
	case n.Spec.Mail != nil:
		return n.Spec.Mail.Secret
	}
	return ""
}

var (
	hostForm    = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+)$`)
	portForm    = regexp.MustCompile(`^[1-9][0-9]{0,4}$`)
	mailAddress = regexp.MustCompile("^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$")
)

func (m *Mail) validate(p *problems) {
	p.need("spec.mail.server", m.Server)
	p.bytes("spec.mail.server", m.Server, 260)
	if host, port := m.HostPort(); m.Server != "" && (!hostForm.MatchString(host) || !portForm.MatchString(port)) {
		p.add("spec.mail.server", "%q must be HOST or HOST:PORT", m.Server)
	}
	validateMailAddress(p, "spec.mail.from", m.From)
	if len(m.To) == 0 {
		p.add("spec.mail.to", "is missing")
	}
	p.max("spec.mail.to", len(m.To), 16)
	for i, to := range m.To {
		validateMailAddress(p, fmt.Sprintf("spec.mail.to[%d]", i), to)
	}
	p.clusterRef("spec.mail.secret", m.Secret)
	validateCA(p, "spec.mail.ca", m.CA)
	if m.Insecure && m.Secret != "" {
		p.add("spec.mail.insecure", "excludes spec.mail.secret: a password is sent over verified TLS only")
	}
}

// validateMailAddress accepts the plain form only: no name, no comment, no quotes, and so nothing that ends a header.
func validateMailAddress(p *problems, field, text string) {
	p.need(field, text)
	p.bytes(field, text, 254)
	if text != "" && !mailAddress.MatchString(text) {
		p.add(field, "%q must be an address such as ops@example.com", text)
	}
}

func validateCA(p *problems, field, text string) {
	p.bytes(field, text, 64<<10)
	if text != "" && !strings.Contains(text, "-----BEGIN CERTIFICATE-----") {
		p.add(field, "has no certificate in PEM")
	}
}

func (w *Webhook) validate(p *problems) {
	p.need("spec.webhook.url", w.URL)
	p.bytes("spec.webhook.url", w.URL, 2<<10)
	p.need("spec.webhook.secret", w.Secret)
	p.clusterRef("spec.webhook.secret", w.Secret)
	validateCA(p, "spec.webhook.ca", w.CA)
	if problem := problemOfURL(w.URL); w.URL != "" && problem != "" {
		p.add("spec.webhook.url", "%s", problem)
	}
}

// problemOfURL returns what is wrong with the URL of a webhook; empty: nothing. It does not repeat the URL, which may
// have a password.
func problemOfURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "is no URL"
	case u.Scheme != "https" && u.Scheme != "http":
		return "must begin with https:// or http://"
	case u.Hostname() == "":
		return "has no host"
	case u.User != nil:
		return "has a user or password, which all who read records would see; the requests are signed instead"
	case u.Fragment != "":
		return "has a fragment, which is not sent"
	}
	return ""
}

// ParseWebhookKey decodes a key of the signatures.
func ParseWebhookKey(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("%w: a key must be whsec_ and base64 of 24 to 64 bytes; create one by: "+
			"echo whsec_$(head -c 32 /dev/urandom | base64)", ErrInvalid)
	}
	return key, nil
}

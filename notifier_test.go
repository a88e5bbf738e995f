package trivet_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func webhookNotifier(w trivet.Webhook) *trivet.Notifier {
	return &trivet.Notifier{Meta: trivet.Meta{Name: "ops"}, Spec: trivet.NotifierSpec{Webhook: &w}}
}

func TestNotifierIsValidated(t *testing.T) {
	good := trivet.Webhook{URL: "https://hooks.example.com/trivet?a=b", Secret: "shared/hook"}
	if err := webhookNotifier(good).Validate(); err != nil {
		t.Error(err)
	}
	for _, tc := range []struct {
		change func(n *trivet.Notifier)
		want   string
	}{
		{func(n *trivet.Notifier) { n.Spec.Webhook = nil }, "spec.webhook is missing"},
		{func(n *trivet.Notifier) { n.Name = strings.Repeat("n", 64) }, "at most 63"},
		{func(n *trivet.Notifier) { n.Spec.Events = make([]string, 65) }, "65 entries"},
		{func(n *trivet.Notifier) { n.Spec.Events = []string{strings.Repeat("r", 65)} }, "65 bytes"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.URL = "" }, "spec.webhook.url is missing"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.Secret = "" }, "spec.webhook.secret is missing"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.Secret = "a/b/c" }, "spec.webhook.secret"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.CA = "x" }, "no certificate in PEM"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.CA = strings.Repeat("x", 65<<10) }, "66560 bytes"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.URL = "https://" + strings.Repeat("h", 3<<10) }, "3080 bytes"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.URL = "ftp://host/" }, "must begin with https://"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.URL = "file:///etc/passwd" }, "must begin with https://"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.URL = "https:///path" }, "has no host"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.URL = "https://:443/" }, "has no host"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.URL = "https://user:pass@host/" }, "has a user or password"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.URL = "https://host/#x" }, "has a fragment"},
		{func(n *trivet.Notifier) { n.Spec.Webhook.URL = "https://host/\r\nX: y" }, "is no URL"},
	} {
		n := webhookNotifier(good)
		tc.change(n)
		if err := n.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) ||
			strings.Contains(err.Error(), "pass@") {
			t.Errorf("%v; want %s", err, tc.want)
		}
	}
}

func TestMailIsValidated(t *testing.T) {
	good := trivet.Mail{Server: "mail.example.com", From: "trivet@example.com", To: []string{"ops+x@example.com"}}
	notifier := func() *trivet.Notifier {
		m := good
		return &trivet.Notifier{Meta: trivet.Meta{Name: "ops"}, Spec: trivet.NotifierSpec{Mail: &m}}
	}
	for server, want := range map[string][2]string{
		"mail.example.com": {"mail.example.com", "587"}, "mail.example.com:25": {"mail.example.com", "25"},
		"10.0.0.1:465": {"10.0.0.1", "465"}, "[2001:db8::1]:25": {"2001:db8::1", "25"},
		"2001:db8::1": {"2001:db8::1", "587"}, "[2001:db8::1]": {"2001:db8::1", "587"},
	} {
		n := notifier()
		n.Spec.Mail.Server = server
		host, port := n.Spec.Mail.HostPort()
		if err := n.Validate(); err != nil || host != want[0] || port != want[1] {
			t.Errorf("%s: host %s, port %s, %v", server, host, port, err)
		}
	}
	for _, tc := range []struct {
		change func(m *trivet.Mail)
		want   string
	}{
		{func(m *trivet.Mail) { m.Server = "" }, "spec.mail.server is missing"},
		{func(m *trivet.Mail) { m.Server = "host:" }, "must be HOST or HOST:PORT"},
		{func(m *trivet.Mail) { m.Server = ":25" }, "must be HOST or HOST:PORT"},
		{func(m *trivet.Mail) { m.Server = "host:99x" }, "must be HOST or HOST:PORT"},
		{func(m *trivet.Mail) { m.Server = "host\r\nQUIT" }, "must be HOST or HOST:PORT"},
		{func(m *trivet.Mail) { m.Server = "smtp://host" }, "must be HOST or HOST:PORT"},
		{func(m *trivet.Mail) { m.From = "" }, "spec.mail.from is missing"},
		{func(m *trivet.Mail) { m.From = "trivet" }, "must be an address"},
		{func(m *trivet.Mail) { m.To = nil }, "spec.mail.to is missing"},
		{func(m *trivet.Mail) { m.To = make([]string, 17) }, "17 entries"},
		{func(m *trivet.Mail) { m.To = []string{"a@b\r\nBcc: c@d"} }, "spec.mail.to[0]"},
		{func(m *trivet.Mail) { m.To = []string{"A <a@b>"} }, "spec.mail.to[0]"},
		{func(m *trivet.Mail) { m.To = []string{"a@b, c@d"} }, "spec.mail.to[0]"},
		{func(m *trivet.Mail) { m.To = []string{strings.Repeat("a", 254) + "@b"} }, "at most 254"},
		{func(m *trivet.Mail) { m.CA = "x" }, "spec.mail.ca has no certificate"},
		{func(m *trivet.Mail) { m.Secret = "-" }, "spec.mail.secret"},
		{func(m *trivet.Mail) { m.Secret, m.Insecure = "s", true }, "over verified TLS only"},
	} {
		n := notifier()
		tc.change(n.Spec.Mail)
		if err := n.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v; want %s", err, tc.want)
		}
	}
	n := notifier()
	n.Spec.Webhook = &trivet.Webhook{URL: "https://host/", Secret: "s"}
	if err := n.Validate(); err == nil || !strings.Contains(err.Error(), "excludes spec.webhook") {
		t.Errorf("both: %v", err)
	}
}

// EventReasons has every constant of event.go, and the defaults of notifiers are among them.
func TestEventReasonsAreComplete(t *testing.T) {
	text, err := os.ReadFile("event.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, m := range regexp.MustCompile(`(?m)^\tReason\w+ = "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		declared = append(declared, m[1])
	}
	if len(declared) < 20 || !slices.Equal(declared, trivet.EventReasons) {
		t.Errorf("EventReasons is %q, and declared are %q", trivet.EventReasons, declared)
	}
	for _, reason := range trivet.DefaultNotifications {
		if !slices.Contains(declared, reason) {
			t.Errorf("no event has reason %q", reason)
		}
	}
}

// An accepted URL begins with http or https, has a host, and no user; a refusal does not repeat it. An accepted key is
// long enough.
func FuzzWebhook(f *testing.F) {
	for _, text := range []string{
		"https://h/", "http://[::1]:80/x?y", "https://u:p@h/", "//h", "https://h/%zz", "HTTPS://H",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_!"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		err := webhookNotifier(trivet.Webhook{URL: text, Secret: "s"}).Validate()
		lower := strings.ToLower(text)
		if err == nil && (!strings.HasPrefix(lower, "https://") && !strings.HasPrefix(lower, "http://") ||
			strings.ContainsAny(text, "\r\n\x00")) {
			t.Fatalf("%q is accepted", text)
		}
		if key, err := trivet.ParseWebhookKey(text); err == nil && (len(key) < 24 || len(key) > 64) {
			t.Fatalf("%q has a key of %d bytes", text, len(key))
		}
	})
}
